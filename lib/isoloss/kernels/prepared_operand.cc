#include "isoloss/kernels/prepared_operand.h"

#include <algorithm>
#include <bit>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/kernels/fused_sum.h"
#include "isoloss/kernels/operand_exponents.h"

namespace isoloss::kernels {
namespace {

using formats::Quantization;
using formats::QuantizedTensor;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Returns the steps after which a scale that multiplies sums may change; 0
/// means that no scale does.
size_t ScaledSteps(const Quantization* quantization) {
  const bool scales = quantization != nullptr && quantization->scales_sums();
  return scales ? quantization->cell.cols : 0;
}

size_t TransformLength(const Quantization* quantization) {
  return quantization == nullptr ? 1
                                 : formats::RunLength(quantization->transform);
}

std::vector<Range> RangesOf(std::span<const size_t> ends, size_t whole) {
  if (ends.empty()) return {{0, whole}};
  std::vector<Range> ranges;
  size_t begin = 0;
  for (const size_t end : ends) {
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

/// Returns a tensor with rows as operand rows.
Matrix<float> RowsOf(const Operand& operand, const TensorCut& cut) {
  Matrix<float> result;
  result.ResizeUninitialized(cut.rows.size(), cut.steps.size());
  for (size_t i = 0; i < result.rows(); ++i) {
    for (size_t k = 0; k < result.cols(); ++k) {
      result(i, k) = operand.At(cut.rows.begin + i, cut.steps.begin + k);
    }
  }
  return result;
}

formats::Scale ScaleAt(const QuantizedTensor& tensor, size_t i, size_t j) {
  formats::Scale scale;
  scale.decode = tensor.scales(i, j);
  if (tensor.scale_bytes.size() > 0) scale.byte = tensor.scale_bytes(i, j);
  return scale;
}

void WriteExponents(const QuantizedTensor& tensor,
                    const Quantization& quantization, FactorExponents exponents,
                    const TensorCut& cut, PreparedOperand& prepared) {
  const formats::Cell cell =
      formats::CellIn(quantization, tensor.codes.rows(), tensor.codes.cols());
  for (size_t i = 0; i < tensor.codes.rows(); ++i) {
    for (size_t k = 0; k < tensor.codes.cols(); ++k) {
      prepared.exponents(cut.rows.begin + i, cut.prepared_steps.begin + k) =
          static_cast<int16_t>(
              ExponentOfElement(exponents, quantization, *quantization.element,
                                tensor.codes(i, k),
                                ScaleAt(tensor, i / cell.rows, k / cell.cols)));
    }
  }
}

void CopyTo(const Matrix<float>& from, const TensorCut& cut,
            Matrix<float>& to) {
  for (size_t i = 0; i < from.rows(); ++i) {
    std::copy_n(from.Row(i), from.cols(),
                to.Row(cut.rows.begin + i) + cut.prepared_steps.begin);
  }
}

/// Returns stored rows, rounded but not quantised.
Matrix<float> RoundedRows(const Operand& operand, const Range& rows) {
  Matrix<float> result;
  result.ResizeUninitialized(rows.size(), operand.values.cols());
  for (size_t i = 0; i < result.rows(); ++i) {
    for (size_t k = 0; k < result.cols(); ++k) {
      result(i, k) =
          Rounded(operand.values(rows.begin + i, k), operand.rounding);
    }
  }
  return result;
}

/// Returns the tensor after the quantisation that came before, with rows as
/// operand rows.
Matrix<float> RowsQuantizedBefore(const Operand& operand,
                                  const TensorCut& cut) {
  const bool stored_rows = operand.contraction == Contraction::kColumns;
  const OperandState none;
  const OperandState& state =
      operand.state_before == nullptr ? none : *operand.state_before;
  const Range rows = stored_rows ? cut.rows : cut.steps;
  const Matrix<float> rounded = RoundedRows(operand, rows);
  const Matrix<float> values = formats::Dequantize(
      formats::Quantize(rounded.view(), *operand.before, state.Of(cut.number)),
      *operand.before);
  Operand after = operand;
  after.values = values.view();
  after.rounding = Rounding::kFp32;
  TensorCut all = cut;
  (stored_rows ? all.rows : all.steps) = {0, rows.size()};
  return RowsOf(after, all);
}

}  // namespace

void PrepareTensorScalar(const Operand& operand, const Pieces& pieces,
                         const TensorCut& cut, FactorExponents exponents,
                         PreparedOperand& prepared) {
  const Matrix<float> rows = operand.before == nullptr
                                 ? RowsOf(operand, cut)
                                 : RowsQuantizedBefore(operand, cut);
  if (operand.quantization == nullptr) {
    CopyTo(rows, cut, prepared.values);
    for (size_t i = 0; i < rows.rows() && prepared.exponents.size() > 0; ++i) {
      std::transform(
          rows.Row(i), rows.Row(i) + rows.cols(),
          prepared.exponents.Row(cut.rows.begin + i) + cut.prepared_steps.begin,
          [](float value) {
            return static_cast<int16_t>(FloatExponentOf(value));
          });
    }
    return;
  }
  const Quantization& quantization = *operand.quantization;
  const OperandState none;
  const OperandState& state = operand.state == nullptr ? none : *operand.state;
  const QuantizedTensor tensor =
      formats::Quantize(rows.view(), quantization, state.Of(cut.number));
  CopyTo(quantization.scales_sums() ? formats::CodeValues(tensor, quantization)
                                    : formats::CellValues(tensor, quantization),
         cut, prepared.values);
  WriteFactors(quantization, tensor.scales.view(), tensor.tensor_scale, pieces,
               cut, prepared);
  if (prepared.exponents.size() > 0) {
    WriteExponents(tensor, quantization, exponents, cut, prepared);
  }
}

void WriteFactors(const Quantization& quantization,
                  MatrixView<const float> scales, float tensor_scale,
                  const Pieces& pieces, const TensorCut& cut,
                  PreparedOperand& prepared) {
  if (prepared.factors.size() == 0) return;
  const Range steps = cut.prepared_steps;
  const formats::Cell cell =
      formats::CellIn(quantization, cut.rows.size(), steps.size());
  size_t piece = 0;
  pieces.ForEach([&](size_t, size_t begin, size_t end) {
    const size_t number = piece++;
    if (begin < steps.begin || end > steps.end || begin == end) return;
    for (size_t i = 0; i < cut.rows.size(); ++i) {
      float factor = tensor_scale;
      if (quantization.scales_sums()) {
        factor *= scales(i / cell.rows, (begin - steps.begin) / cell.cols);
      }
      prepared.factors(cut.rows.begin + i, number) = factor;
    }
  });
}

std::vector<TensorCut> CutsOf(const Operand& operand, const Pieces& pieces) {
  const bool tokens_are_rows = operand.contraction == Contraction::kColumns;
  const std::vector<Range> rows = RangesOf(
      tokens_are_rows ? operand.tensor_ends : std::span<const size_t>(),
      operand.extent());
  const std::vector<Range> steps =
      RangesOf(pieces.stored_ends, operand.depth());
  ISOLOSS_ASSERT(operand.before == nullptr || rows.size() == 1 ||
                 steps.size() == 1);
  std::vector<TensorCut> cuts;
  for (const Range& of_rows : rows) {
    for (size_t s = 0; s < steps.size(); ++s) {
      cuts.push_back({cuts.size(),
                      of_rows,
                      steps[s],
                      {pieces.SegmentBegin(s), pieces.segment_ends[s]}});
    }
  }
  return cuts;
}

void Resize(const Operand& operand, const Pieces& pieces,
            FactorExponents exponents, PreparedOperand& prepared) {
  const size_t extent = operand.extent();
  // Resize writes zeros, which stay in the steps that a transform adds.
  prepared.values.Resize(extent, pieces.depth());
  const Quantization* quantization = operand.quantization;
  const bool factors =
      quantization != nullptr &&
      (quantization->scales_sums() || quantization->scales_tensor());
  prepared.factors.Resize(factors ? extent : 0, factors ? pieces.count() : 0);
  const bool are_stored = exponents != FactorExponents::kOfValues;
  prepared.exponents.Resize(are_stored ? extent : 0,
                            are_stored ? pieces.depth() : 0);
}

void PrepareScalar(const Operand& operand, const Pieces& pieces,
                   FactorExponents exponents, PreparedOperand& prepared) {
  Resize(operand, pieces, exponents, prepared);
  for (const TensorCut& cut : CutsOf(operand, pieces)) {
    PrepareTensorScalar(operand, pieces, cut, exponents, prepared);
  }
}

formats::TensorState OperandState::Of(size_t tensor) const {
  formats::TensorState state = common;
  state.stream =
      CounterRng(common.seed, common.stream).Bits(first_tensor + tensor);
  return state;
}

size_t Pieces::count() const {
  size_t pieces = 0;
  ForEach([&](size_t, size_t, size_t) { ++pieces; });
  return pieces;
}

PieceSteps PieceStepsOf(const Quantization* a, const Quantization* b,
                        const Accumulation& accumulation) {
  const size_t all[] = {ScaledSteps(a), ScaledSteps(b), accumulation.interval};
  size_t least = 0;
  for (const size_t steps : all) {
    if (steps != 0) least = least == 0 ? steps : std::min(least, steps);
  }
  const bool multiples = std::ranges::all_of(
      all, [least](size_t steps) { return steps == 0 || steps % least == 0; });
  return {all[0], all[1], all[2], least, multiples};
}

Pieces PiecesOf(const Quantization* a, const Quantization* b,
                const Accumulation& accumulation,
                std::span<const size_t> segment_ends) {
  const PieceSteps steps = PieceStepsOf(a, b, accumulation);
  if (!steps.multiples) {
    ThrowError(ErrorKind::kShape,
               "Gemm: scales of a change every {} steps, those of b every {}, "
               "and sums are promoted every {}, but each must be a multiple of "
               "the least. Give cells and an interval that fit.",
               steps.scales_of_a, steps.scales_of_b, steps.promotion);
  }
  Pieces pieces;
  pieces.length = steps.least;
  const size_t run = TransformLength(a);
  if (run != TransformLength(b)) {
    ThrowError(
        ErrorKind::kShape,
        "Gemm: a is transformed in runs of {} steps and b of {}, but both "
        "must be transformed alike. Give both the same transform.",
        run, TransformLength(b));
  }
  pieces.stored_ends.assign(segment_ends.begin(), segment_ends.end());
  size_t stored = 0;
  size_t end = 0;
  for (const size_t stored_end : segment_ends) {
    end += RoundUp(stored_end - stored, run);
    stored = stored_end;
    pieces.segment_ends.push_back(end);
  }
  return pieces;
}

}  // namespace isoloss::kernels
