#include "isoloss/kernels/prepare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "isoloss/formats/rules.h"
#include "isoloss/kernels/operand_exponents.h"
#include "isoloss/kernels/quantize.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/prepare.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/round_elements-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

/// Writes the exponents of a row's elements, codes times the scales of cells,
/// whose exponents are given. None of a code is below `least`, save that of
/// zero. Compilers vectorise it.
void RowExponents(const float* row, size_t count, size_t of_cell,
                  const int16_t* of_scales, int32_t least, int16_t* exponents) {
  for (size_t first = 0; first < count; first += of_cell, ++of_scales) {
    const int32_t least_of_cell = least + *of_scales;
    const int32_t of_zero = -126 + *of_scales;
    const size_t end = std::min(count, first + of_cell);
    for (size_t k = first; k < end; ++k) {
      const int32_t bits = std::bit_cast<int32_t>(row[k]) & 0x7FFFFFFF;
      const int32_t exponent = std::max((bits >> 23) - 127, least_of_cell);
      exponents[k] = static_cast<int16_t>(bits == 0 ? of_zero : exponent);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

bool CanRound(const formats::Quantization& /*quantization*/) { return false; }

void RowAmax(const float* row, size_t count, size_t of_cell, uint32_t* amax) {
  for (size_t k = 0; k < count; k += of_cell, ++amax) {
    const size_t length = std::min(of_cell, count - k);
    *amax = std::max(*amax, formats::AmaxBits({row + k, 1, length}, false));
  }
}

void RoundRow(const formats::Quantization& /*quantization*/,
              const formats::Scale* /*scales*/, size_t /*of_cell*/,
              const uint16_t* /*random*/, size_t /*count*/, float* /*row*/) {}

void FillRandom(const formats::TensorState& /*state*/, size_t /*row*/,
                size_t /*count*/, uint16_t* /*random*/) {}

void CopyTransposed(MatrixView<const float> from, MatrixView<float> to) {
  for (size_t i = 0; i < to.rows(); ++i) {
    for (size_t k = 0; k < to.cols(); ++k) to(i, k) = from(k, i);
  }
}

void HadamardRows(uint32_t negative, MatrixView<float> rows) {
  for (size_t i = 0; i < rows.rows(); ++i) {
    for (size_t k = 0; k < rows.cols(); k += formats::kHadamardLength) {
      formats::Hadamard16({rows.Row(i) + k, formats::kHadamardLength},
                          negative);
    }
  }
}

#else

bool CanRound(const formats::Quantization& quantization) {
  return ElementRounder::Takes(quantization);
}

/// Raises amax[j] to the bits of the largest magnitude in cell j.
void RowAmax(const float* row, size_t count, size_t of_cell, uint32_t* amax) {
  const U32 du;
  for (size_t first = 0; first < count; first += of_cell, ++amax) {
    const float* const cell = row + first;
    VecU largest = hn::Set(du, *amax);
    ForEachVector(F32(), std::min(of_cell, count - first),
                  [&](size_t k, size_t n) HWY_ATTR {
                    const VecF value = LoadFirst(F32(), cell + k, n);
                    largest =
                        hn::Max(largest, hn::And(hn::BitCast(du, value),
                                                 hn::Set(du, 0x7FFFFFFFu)));
                  });
    *amax = hn::GetLane(hn::MaxOfLanes(du, largest));
  }
}

void RoundRow(const formats::Quantization& quantization,
              const formats::Scale* scales, size_t of_cell,
              const uint16_t* random, size_t count, float* row) {
  ElementRounder(quantization).Apply(scales, of_cell, random, count, row);
}

void FillRandom(const formats::TensorState& state, size_t row, size_t count,
                uint16_t* random) {
  PhiloxRow(state.seed, state.stream, row, count, random);
}

void CopyTransposed(MatrixView<const float> from, MatrixView<float> to) {
  TransposeTiles(from, to);
}

void HadamardRows(uint32_t negative, MatrixView<float> rows) {
  for (size_t i = 0; i < rows.rows(); ++i) {
    HadamardRow(negative, rows.cols(), rows.Row(i));
  }
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(RowExponents);
HWY_EXPORT(CanRound);
HWY_EXPORT(RowAmax);
HWY_EXPORT(RoundRow);
HWY_EXPORT(FillRandom);
HWY_EXPORT(HadamardRows);
HWY_EXPORT(CopyTransposed);

using formats::Quantization;
using formats::Scale;

constexpr uint32_t kInfinityBits = 0x7F800000;

/// Each lane makes the random numbers of a row in blocks of kRandomBlock; there
/// are at most kLogicalLanes lanes.
constexpr size_t kRandomBlock = 8;
constexpr size_t kLogicalLanes = 16;

void Transform(const Quantization& quantization,
               const formats::TensorState& state, MatrixView<float> tensor) {
  if (!quantization.transforms()) return;
  HWY_DYNAMIC_DISPATCH(HadamardRows)
  (formats::NegativeElements(quantization.transform, state.transform_key),
   tensor);
}

/// Returns the bits of each cell's largest magnitude, which may be a NaN or an
/// infinity.
Matrix<uint32_t> AmaxOfCells(MatrixView<const float> tensor,
                             const formats::Cell& cell, size_t cells_down,
                             size_t cells_along) {
  Matrix<uint32_t> amax(cells_down, cells_along);
  for (size_t row = 0; row < tensor.rows(); ++row) {
    HWY_DYNAMIC_DISPATCH(RowAmax)
    (tensor.Row(row), tensor.cols(), cell.cols, amax.Row(row / cell.rows));
  }
  return amax;
}

MatrixView<const float> CellAt(MatrixView<const float> tensor,
                               const formats::Cell& cell, size_t i, size_t j) {
  const size_t row = i * cell.rows;
  const size_t col = j * cell.cols;
  return tensor.Rows(row, std::min(cell.rows, tensor.rows() - row))
      .Cols(col, std::min(cell.cols, tensor.cols() - col));
}

/// Rounds the run of a row that lies in one cell, element by element as
/// defined.
void RoundAsDefined(const Quantization& quantization, const Scale& scale,
                    const uint16_t* random, size_t count, float* row) {
  for (size_t k = 0; k < count; ++k) {
    const int bits = quantization.random_bits;
    const formats::RandomBits of_element =
        random == nullptr
            ? formats::RandomBits{}
            : formats::RandomBits{uint32_t{random[k]} >> (16 - bits), bits};
    const float value = formats::Decode(
        *quantization.element,
        formats::CodeOf(row[k], scale, quantization, of_element));
    row[k] = quantization.scales_sums() ? value : value * scale.decode;
  }
}

/// Quantises a row of cells, each with its scale.
class CellRow {
 public:
  CellRow(const Quantization& quantization, const formats::TensorAmax& tensor,
          size_t cells)
      : quantization_(quantization),
        tensor_(tensor),
        scales_(cells),
        common_(cells) {}

  /// `rare` means that something in the cell is not finite. Returns the factor
  /// that decodes the codes of the cell.
  float Set(size_t cell, uint32_t amax, bool rare) {
    scales_[cell] = formats::ScaleOfCell(quantization_, amax, tensor_);
    common_[cell] = scales_[cell];
    if (rare) common_[cell].encode = std::numeric_limits<float>::quiet_NaN();
    return scales_[cell].decode;
  }

  void Round(size_t of_cell, const uint16_t* random, size_t count,
             float* row) const {
    HWY_DYNAMIC_DISPATCH(RoundRow)
    (quantization_, common_.data(), of_cell, random, count, row);
    for (size_t j = 0; j < common_.size(); ++j) {
      if (!std::isnan(common_[j].encode)) continue;
      const size_t first = j * of_cell;
      RoundAsDefined(quantization_, scales_[j],
                     random == nullptr ? nullptr : random + first,
                     std::min(of_cell, count - first), row + first);
    }
  }

 private:
  const Quantization& quantization_;
  const formats::TensorAmax& tensor_;
  std::vector<Scale> scales_;
  std::vector<Scale> common_;  // the same, NaN where something is not finite
};

void CopyRounded(MatrixView<const float> from, Rounding rounding,
                 MatrixView<float> to) {
  Executor alone(1);
  Cast(from, rounding, to, alone);
}

/// Copies the tensor's values to `to` as operand rows.
void Gather(const Operand& operand, const TensorCut& cut,
            MatrixView<float> to) {
  const size_t steps = cut.steps.size();
  if (operand.contraction == Contraction::kColumns) {
    CopyRounded(operand.values.Rows(cut.rows.begin, to.rows())
                    .Cols(cut.steps.begin, steps),
                operand.rounding, to.Cols(0, steps));
    return;
  }
  HWY_DYNAMIC_DISPATCH(CopyTransposed)
  (operand.values.Rows(cut.steps.begin, steps)
       .Cols(cut.rows.begin, cut.rows.size()),
   to.Cols(0, steps));
  if (operand.rounding != Rounding::kFp32) {
    CopyRounded(to, operand.rounding, to);
  }
}

void QuantizeTensor(MatrixView<float> tensor, const Quantization& quantization,
                    const formats::TensorState& state) {
  if (!HWY_DYNAMIC_DISPATCH(CanRound)(quantization)) {
    CopyRounded(
        formats::Dequantize(formats::Quantize(tensor, quantization, state),
                            quantization)
            .view(),
        Rounding::kFp32, tensor);
    return;
  }
  Matrix<float> scales;
  const float of_tensor = QuantizeInPlace(tensor, quantization, state, scales);
  const formats::Cell cell =
      formats::CellIn(quantization, tensor.rows(), tensor.cols());
  const bool scales_sums = quantization.scales_sums();
  for (size_t i = 0; i < tensor.rows(); ++i) {
    for (size_t k = 0; k < tensor.cols(); ++k) {
      if (scales_sums) tensor(i, k) *= scales(i / cell.rows, k / cell.cols);
      tensor(i, k) *= of_tensor;
    }
  }
}

/// Returns the stored rows of a tensor after the quantisation that came before.
Matrix<float> QuantizedBefore(const Operand& operand, const TensorCut& cut) {
  const Range rows =
      operand.contraction == Contraction::kColumns ? cut.rows : cut.steps;
  const MatrixView<const float> stored =
      operand.values.Rows(rows.begin, rows.size());
  Matrix<float> values;
  values.ResizeUninitialized(stored.rows(), stored.cols());
  CopyRounded(stored, operand.rounding, values.view());
  const OperandState none;
  const OperandState& state =
      operand.state_before == nullptr ? none : *operand.state_before;
  QuantizeTensor(values.view(), *operand.before, state.Of(cut.number));
  return values;
}

/// Tells whether exponents can be found without the codes of the elements.
bool HasFastExponents(const Quantization* quantization,
                      FactorExponents exponents) {
  if (exponents == FactorExponents::kOfValues) return true;
  return exponents == FactorExponents::kOfCodes &&
         (quantization == nullptr || quantization->scales_sums() ||
          quantization->is_mx());
}

bool IsFast(const Operand& operand, FactorExponents exponents) {
  const auto takes = [](const Quantization* quantization) {
    return quantization == nullptr ||
           HWY_DYNAMIC_DISPATCH(CanRound)(*quantization);
  };
  const bool before_is_plain =
      operand.before == nullptr || !operand.before->transforms();
  return HasFastExponents(operand.quantization, exponents) &&
         takes(operand.quantization) && takes(operand.before) &&
         before_is_plain;
}

/// Holds exponents of scales that the values of a tensor's elements contain.
struct ScaleExponents {
  size_t of_cell = 0;        ///< a cell has this number of steps
  Matrix<int16_t> of_cells;  ///< [rows, cells]
  bool regular = true;       ///< all values but zeros are normal FP32 numbers
};

/// Finds the exponents of scales before a tensor is quantised.
ScaleExponents ExponentsOfScales(MatrixView<const float> tensor,
                                 const Quantization* quantization) {
  ScaleExponents result;
  if (quantization == nullptr || !quantization->is_mx()) {
    result.of_cell = tensor.cols();
    result.of_cells.Resize(tensor.rows(), 1);
    return result;
  }
  const formats::Cell cell =
      formats::CellIn(*quantization, tensor.rows(), tensor.cols());
  result.of_cell = cell.cols;
  const Matrix<uint32_t> amax = AmaxOfCells(
      tensor, cell, tensor.rows(), (tensor.cols() + cell.cols - 1) / cell.cols);
  result.of_cells.ResizeUninitialized(amax.rows(), amax.cols());
  const int least = 1 - quantization->element->bias;
  for (size_t i = 0; i < amax.size(); ++i) {
    const uint32_t bits = amax.data()[i];
    const int exponent = ExponentOfScale(
        *quantization, formats::ScaleOfCell(*quantization, bits, {}));
    result.of_cells.data()[i] = static_cast<int16_t>(exponent);
    result.regular = result.regular && (bits == 0 || exponent + least >= -126);
  }
  return result;
}

/// Writes the exponents of a tensor whose elements have been quantised.
void WriteExponents(const ScaleExponents& scales,
                    const Quantization* quantization, const TensorCut& cut,
                    PreparedOperand& prepared) {
  const int least =
      quantization == nullptr ? -126 : 1 - quantization->element->bias;
  for (size_t i = 0; i < cut.rows.size(); ++i) {
    const size_t row = cut.rows.begin + i;
    const size_t step = cut.prepared_steps.begin;
    HWY_DYNAMIC_DISPATCH(RowExponents)
    (prepared.values.Row(row) + step, cut.prepared_steps.size(), scales.of_cell,
     scales.of_cells.Row(i), least, prepared.exponents.Row(row) + step);
  }
}

}  // namespace

float QuantizeInPlace(MatrixView<float> tensor,
                      const formats::Quantization& quantization,
                      const formats::TensorState& state,
                      Matrix<float>& scales) {
  if (quantization.is_mx()) {
    Executor alone(1);
    QuantizeDequantize(tensor, quantization, tensor, alone);
    return 1.0f;  // blocks are scaled, and nothing else
  }
  Transform(quantization, state, tensor);
  const formats::Cell cell =
      formats::CellIn(quantization, tensor.rows(), tensor.cols());
  scales.Resize((tensor.rows() + cell.rows - 1) / cell.rows,
                (tensor.cols() + cell.cols - 1) / cell.cols);
  Matrix<uint32_t> amax =
      AmaxOfCells(tensor, cell, scales.rows(), scales.cols());
  const bool skip_nan =
      quantization.non_finite == formats::NonFinitePolicy::kTe;
  formats::TensorAmax of_tensor = {0, state.history};
  for (size_t i = 0; i < amax.rows(); ++i) {
    for (size_t j = 0; j < amax.cols(); ++j) {
      uint32_t bits = amax(i, j);
      if (bits >= kInfinityBits) {
        bits = formats::AmaxBits(CellAt(tensor, cell, i, j), true);
      }
      if (bits < kInfinityBits || skip_nan) {
        of_tensor.current = std::max(of_tensor.current, bits);
      }
    }
  }

  ScaleTensor(quantization, of_tensor);

  const bool stochastic = quantization.is_stochastic();
  CellRow cells(quantization, of_tensor, scales.cols());
  std::vector<uint16_t> random(
      stochastic ? tensor.cols() + kRandomBlock * kLogicalLanes : 0);
  for (size_t row = 0; row < tensor.rows(); ++row) {
    const size_t i = row / cell.rows;
    if (row % cell.rows == 0) {
      for (size_t j = 0; j < scales.cols(); ++j) {
        const bool rare = amax(i, j) >= kInfinityBits;
        const uint32_t bits =
            rare && skip_nan
                ? formats::AmaxBits(CellAt(tensor, cell, i, j), true)
                : amax(i, j);
        scales(i, j) = cells.Set(j, bits, rare);
      }
    }
    if (stochastic) {
      HWY_DYNAMIC_DISPATCH(FillRandom)
      (state, row, tensor.cols(), random.data());
    }
    cells.Round(cell.cols, stochastic ? random.data() : nullptr, tensor.cols(),
                tensor.Row(row));
  }
  return of_tensor.scale.decode;
}

void QuantizeTensors(std::span<const TensorToQuantize> tensors,
                     Executor& executor) {
  if (RanElsewhere(&QuantizeTensors, tensors, executor)) return;
  executor.ParallelFor(tensors.size(), [tensors](size_t i) {
    const auto& [tensor, quantization, state] = tensors[i];
    QuantizeTensor(tensor, *quantization, state);
  });
}

void PrepareTensor(const Operand& operand, const Pieces& pieces,
                   const TensorCut& cut, FactorExponents exponents,
                   PreparedOperand& prepared) {
  const auto as_defined = [&] {
    PrepareTensorScalar(operand, pieces, cut, exponents, prepared);
  };
  if (!IsFast(operand, exponents)) return as_defined();
  Operand source = operand;
  TensorCut from = cut;
  Matrix<float> before;
  if (operand.before != nullptr) {
    before = QuantizedBefore(operand, cut);
    source.values = before.view();
    source.rounding = Rounding::kFp32;
    const bool stored_rows = operand.contraction == Contraction::kColumns;
    // `before` holds only the stored rows of this tensor.
    Range& rows = stored_rows ? from.rows : from.steps;
    rows = {0, rows.size()};
  }
  const MatrixView<float> tensor =
      prepared.values.view()
          .Rows(cut.rows.begin, cut.rows.size())
          .Cols(cut.prepared_steps.begin, cut.prepared_steps.size());
  Gather(source, from, tensor);
  const Quantization* const quantization = operand.quantization;
  ScaleExponents of_scales;
  const bool stored = exponents != FactorExponents::kOfValues;
  if (stored) {
    of_scales = ExponentsOfScales(tensor, quantization);
    if (!of_scales.regular) return as_defined();
  }
  if (quantization != nullptr) {
    const OperandState none;
    const OperandState& state =
        operand.state == nullptr ? none : *operand.state;
    Matrix<float> scales;
    const float of_tensor =
        QuantizeInPlace(tensor, *quantization, state.Of(cut.number), scales);
    WriteFactors(*quantization, scales.view(), of_tensor, pieces, cut,
                 prepared);
  }
  if (stored) WriteExponents(of_scales, quantization, cut, prepared);
}

void Prepare(const Operand& operand, const Pieces& pieces,
             FactorExponents exponents, PreparedOperand& prepared) {
  Resize(operand, pieces, exponents, prepared);
  for (const TensorCut& cut : CutsOf(operand, pieces)) {
    PrepareTensor(operand, pieces, cut, exponents, prepared);
  }
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
