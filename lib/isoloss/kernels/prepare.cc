#include "isoloss/kernels/prepare.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "isoloss/formats/hadamard.h"
#include "isoloss/formats/transform.h"

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
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

bool CanRound(const formats::Quantization& /*quantization*/) { return false; }

uint32_t RowAmax(const float* row, size_t count) {
  return formats::AmaxBits({row, 1, count}, /*skip_nan=*/false);
}

void RoundRow(const formats::Quantization& /*quantization*/,
              const formats::Scale& /*scale*/, const uint16_t* /*random*/,
              size_t /*count*/, float* /*row*/) {}

void FillRandom(const formats::TensorState& /*state*/, size_t /*row*/,
                size_t /*count*/, uint16_t* /*random*/) {}

void CopyTransposed(MatrixView<const float> from, MatrixView<float> to) {
  for (size_t i = 0; i < to.rows(); ++i) {
    for (size_t k = 0; k < to.cols(); ++k) to(i, k) = from(k, i);
  }
}

#else

bool CanRound(const formats::Quantization& quantization) {
  return ElementRounder::Takes(quantization);
}

uint32_t RowAmax(const float* row, size_t count) {
  const U32 du;
  VecU amax = hn::Zero(du);
  ForEachVector(F32(), count, [&](size_t i, size_t n) HWY_ATTR {
    const VecF value = LoadFirst(F32(), row + i, n);
    amax = hn::Max(amax,
                   hn::And(hn::BitCast(du, value), hn::Set(du, 0x7FFFFFFFu)));
  });
  return hn::GetLane(hn::MaxOfLanes(du, amax));
}

void RoundRow(const formats::Quantization& quantization,
              const formats::Scale& scale, const uint16_t* random, size_t count,
              float* row) {
  ElementRounder(quantization, scale).Apply(random, count, row);
}

void FillRandom(const formats::TensorState& state, size_t row, size_t count,
                uint16_t* random) {
  PhiloxRow(state.seed, state.stream, row, count, random);
}

void CopyTransposed(MatrixView<const float> from, MatrixView<float> to) {
  TransposeTiles(from, to);
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(CanRound);
HWY_EXPORT(RowAmax);
HWY_EXPORT(RoundRow);
HWY_EXPORT(FillRandom);
HWY_EXPORT(CopyTransposed);

using formats::Quantization;
using formats::Scale;

constexpr uint32_t kInfinityBits = 0x7F800000;

/// Random numbers of a row come in blocks of so many.
constexpr size_t kRandomBlock = 8;

void Transform(const Quantization& quantization,
               const formats::TensorState& state, MatrixView<float> tensor) {
  if (quantization.transform == nullptr) return;
  const size_t length = quantization.transform->length;
  for (size_t row = 0; row < tensor.rows(); ++row) {
    for (size_t col = 0; col < tensor.cols(); col += length) {
      quantization.transform->apply({tensor.Row(row) + col, length},
                                    state.transform_key);
    }
  }
}

/// The bits of each cell's largest magnitude, a NaN or an infinity among them.
Matrix<uint32_t> AmaxOfCells(MatrixView<const float> tensor,
                             const formats::Cell& cell, size_t cells_down,
                             size_t cells_along) {
  Matrix<uint32_t> amax(cells_down, cells_along);
  for (size_t row = 0; row < tensor.rows(); ++row) {
    uint32_t* const of_row = amax.Row(row / cell.rows);
    for (size_t j = 0; j < cells_along; ++j) {
      const size_t first = j * cell.cols;
      const size_t count = std::min(cell.cols, tensor.cols() - first);
      of_row[j] = std::max(of_row[j], HWY_DYNAMIC_DISPATCH(RowAmax)(
                                          tensor.Row(row) + first, count));
    }
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

/// One run of a row in a cell, element by element as defined.
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

/// The tensor's values as operand rows.
void Gather(const Operand& operand, const TensorCut& cut,
            MatrixView<float> to) {
  const size_t steps = cut.steps.size();
  if (operand.contraction == Contraction::kColumns) {
    for (size_t i = 0; i < to.rows(); ++i) {
      std::copy_n(operand.values.Row(cut.rows.begin + i) + cut.steps.begin,
                  steps, to.Row(i));
    }
    return;
  }
  HWY_DYNAMIC_DISPATCH(CopyTransposed)
  (operand.values.Rows(cut.steps.begin, steps)
       .Cols(cut.rows.begin, cut.rows.size()),
   to.Cols(0, steps));
}

/// The stored rows of a tensor after the quantisation before.
Matrix<float> QuantizedBefore(const Operand& operand, const TensorCut& cut) {
  const Range rows =
      operand.contraction == Contraction::kColumns ? cut.rows : cut.steps;
  const MatrixView<const float> stored =
      operand.values.Rows(rows.begin, rows.size());
  Matrix<float> values;
  values.ResizeUninitialized(stored.rows(), stored.cols());
  for (size_t i = 0; i < stored.rows(); ++i) {
    std::copy_n(stored.Row(i), stored.cols(), values.Row(i));
  }
  const OperandState none;
  const OperandState& state =
      operand.state_before == nullptr ? none : *operand.state_before;
  Matrix<float> scales;
  const float of_tensor = QuantizeInPlace(values.view(), *operand.before,
                                          state.Of(cut.number), scales);
  const formats::Cell cell =
      formats::CellIn(*operand.before, values.rows(), values.cols());
  const bool scales_sums = operand.before->scales_sums();
  for (size_t i = 0; i < values.rows(); ++i) {
    for (size_t k = 0; k < values.cols(); ++k) {
      if (scales_sums) values(i, k) *= scales(i / cell.rows, k / cell.cols);
      values(i, k) *= of_tensor;
    }
  }
  return values;
}

bool IsFast(const Operand& operand, const PreparedOperand& prepared) {
  const auto takes = [](const Quantization* quantization) {
    return quantization == nullptr ||
           HWY_DYNAMIC_DISPATCH(CanRound)(*quantization);
  };
  const bool before_is_plain =
      operand.before == nullptr || operand.before->transform == nullptr;
  return prepared.exponents.size() == 0 && takes(operand.quantization) &&
         takes(operand.before) && before_is_plain;
}

}  // namespace

float QuantizeInPlace(MatrixView<float> tensor,
                      const formats::Quantization& quantization,
                      const formats::TensorState& state,
                      Matrix<float>& scales) {
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
      uint32_t finite = amax(i, j);
      if (finite >= kInfinityBits) {
        finite = formats::AmaxBits(CellAt(tensor, cell, i, j), true);
      }
      if (finite < kInfinityBits) {
        of_tensor.current = std::max(of_tensor.current, finite);
      }
    }
  }

  const bool stochastic = quantization.rounding->stochastic;
  std::vector<Scale> of_cells(scales.cols());
  std::vector<bool> rare(scales.cols());
  std::vector<uint16_t> random(stochastic ? (tensor.cols() + kRandomBlock * 16)
                                          : 0);
  for (size_t row = 0; row < tensor.rows(); ++row) {
    const size_t i = row / cell.rows;
    for (size_t j = 0; j < scales.cols() && row % cell.rows == 0; ++j) {
      uint32_t bits = amax(i, j);
      rare[j] = bits >= kInfinityBits;
      if (rare[j] && skip_nan) {
        bits = formats::AmaxBits(CellAt(tensor, cell, i, j), true);
      }
      of_cells[j] = formats::ScaleOfCell(quantization, bits, of_tensor);
      scales(i, j) = of_cells[j].decode;
    }
    if (stochastic) {
      HWY_DYNAMIC_DISPATCH(FillRandom)
      (state, row, tensor.cols(), random.data());
    }
    for (size_t j = 0; j < scales.cols(); ++j) {
      const size_t first = j * cell.cols;
      const size_t count = std::min(cell.cols, tensor.cols() - first);
      const uint16_t* const bits = stochastic ? random.data() + first : nullptr;
      float* const run = tensor.Row(row) + first;
      if (rare[j]) {
        RoundAsDefined(quantization, of_cells[j], bits, count, run);
      } else {
        HWY_DYNAMIC_DISPATCH(RoundRow)
        (quantization, of_cells[j], bits, count, run);
      }
    }
  }
  return quantization.scaling->of_tensor == nullptr
             ? 1.0f
             : quantization.scaling->of_tensor(quantization, of_tensor);
}

void PrepareTensor(const Operand& operand, const Pieces& pieces,
                   const TensorCut& cut, PreparedOperand& prepared) {
  if (!IsFast(operand, prepared)) {
    PrepareTensorScalar(operand, pieces, cut, prepared);
    return;
  }
  Operand source = operand;
  TensorCut from = cut;
  Matrix<float> before;
  if (operand.before != nullptr) {
    before = QuantizedBefore(operand, cut);
    source.values = before.view();
    const bool stored_rows = operand.contraction == Contraction::kColumns;
    // Stored rows of the tensor are all that is left of them.
    Range& rows = stored_rows ? from.rows : from.steps;
    rows = {0, rows.size()};
  }
  const MatrixView<float> tensor =
      prepared.values.view()
          .Rows(cut.rows.begin, cut.rows.size())
          .Cols(cut.prepared_steps.begin, cut.prepared_steps.size());
  Gather(source, from, tensor);
  if (operand.quantization == nullptr) return;
  const OperandState none;
  const OperandState& state = operand.state == nullptr ? none : *operand.state;
  Matrix<float> scales;
  const float of_tensor = QuantizeInPlace(tensor, *operand.quantization,
                                          state.Of(cut.number), scales);
  WriteFactors(*operand.quantization, scales.view(), of_tensor, pieces, cut,
               prepared);
}

void Prepare(const Operand& operand, const Pieces& pieces, bool exponents,
             PreparedOperand& prepared) {
  Resize(operand, pieces, exponents, prepared);
  for (const TensorCut& cut : CutsOf(operand, pieces)) {
    PrepareTensor(operand, pieces, cut, prepared);
  }
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
