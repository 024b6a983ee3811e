#include "isoloss/oracle/scalar_operand.h"

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/oracle/estimate.h"
#include "isoloss/oracle/scalar_cast.h"

namespace isoloss::oracle {
namespace {

using formats::Quantization;
using formats::ScaleFormat;

/// Returns the steps between two scales that multiply sums, or 0 if there is at
/// most one scale.
size_t ScaledSteps(const Quantization* quantization) {
  return quantization != nullptr &&
                 quantization->scale_format == ScaleFormat::kFp32
             ? quantization->cell.cols
             : 0;
}

size_t RunOf(const Quantization* quantization) {
  return quantization == nullptr ? 1
                                 : formats::RunLength(quantization->transform);
}

/// Returns the stored values after the quantisation along their rows.
Matrix<float> After(const ScalarOperand& operand,
                    std::span<const size_t> ends) {
  Matrix<float> result(operand.values.rows(), operand.values.cols());
  size_t begin = 0;
  for (size_t number = 0; number < ends.size(); ++number) {
    const Matrix<float> part = ScalarDequantize(
        ScalarQuantize(
            operand.values.Rows(begin, ends[number] - begin), *operand.before,
            StateOfTensor(operand.state_before, operand.first_tensor + number)),
        result.cols());
    if (part.size() > 0) {
      std::copy_n(part.data(), part.size(), result.Row(begin));
    }
    begin = ends[number];
  }
  return result;
}

constexpr int kFp32Least = -126;

int ExponentOf(float value, int least) {
  if (value == 0.0f) return kFp32Least;
  return std::isfinite(value) ? std::max(std::ilogb(value), least) : least;
}

/// Returns what an element's scale adds to its exponent.
int ExponentOfScale(const Quantization& quantization, float scale) {
  switch (quantization.scale_format) {
    case ScaleFormat::kE8m0:
      return std::isfinite(scale) ? std::ilogb(scale) : 0;
    case ScaleFormat::kPow2:
      return ExponentOf(scale, kFp32Least);
    case ScaleFormat::kE4m3:
      return ExponentOf(scale, -6);
    case ScaleFormat::kNone:
    case ScaleFormat::kFp32:
      break;
  }
  return 0;
}

/// Rounds what BF16 does not hold, and sets exponents to those of the values.
void ReadAsBf16(PreparedSide& side) {
  for (size_t i = 0; i < side.values.size(); ++i) {
    float& value = side.values.data()[i];
    value = RoundTo(Grid::kBf16, static_cast<double>(value));
    side.exponents.data()[i] =
        static_cast<int16_t>(ExponentOf(value, kFp32Least));
  }
}

/// Writes one tensor to operand rows from `row` and steps from `step` on.
void Write(const ScalarTensor& tensor, const Quantization& quantization,
           const ScalarPieces& pieces, const TensorCore* core, size_t row,
           size_t step, PreparedSide& side) {
  const bool scales_sums = quantization.scale_format == ScaleFormat::kFp32;
  const int least = LeastExponent(*quantization.element);
  const bool scales_only =
      core != nullptr && core->aligned == Aligned::kByScales;
  tensor.ForEachRun(
      [&](size_t i, size_t first, size_t end, const ScalarScale& scale) {
        const float factor = scales_sums ? 1.0f : scale.decode;
        const float* codes = tensor.codes.Row(i);
        float* values = side.values.Row(row + i) + step;
        for (size_t k = first; k < end; ++k) values[k] = codes[k] * factor;
        for (size_t k = first; core != nullptr && k < end; ++k) {
          const int of_code = scales_only ? 0 : ExponentOf(codes[k], least);
          side.exponents(row + i, step + k) = static_cast<int16_t>(
              of_code + ExponentOfScale(quantization, scale.decode));
        }
      });
  if (side.factors.size() == 0) return;
  for (size_t p = 0; p < pieces.pieces.size(); ++p) {
    const auto [segment, begin, end] = pieces.pieces[p];
    const bool inside =
        begin >= step && end <= step + tensor.codes.cols() && begin < end;
    for (size_t i = 0; inside && i < tensor.codes.rows(); ++i) {
      side.factors(row + i, p) = scales_sums
                                     ? tensor.ScaleAt(i, begin - step).decode
                                     : tensor.tensor_scale;
    }
  }
}

}  // namespace

formats::TensorState StateOfTensor(formats::TensorState shared, size_t number) {
  shared.stream = CounterRng(shared.seed, shared.stream).Bits(number);
  return shared;
}

ScalarPieces PiecesOf(const Quantization* a, const Quantization* b,
                      size_t interval, std::span<const size_t> ends,
                      size_t depth) {
  const size_t run = RunOf(a);
  size_t length = 0;
  for (const size_t steps : {ScaledSteps(a), ScaledSteps(b), interval}) {
    if (steps > 0 && (length == 0 || steps < length)) length = steps;
  }
  bool fits = run == RunOf(b);
  for (const size_t steps : {ScaledSteps(a), ScaledSteps(b), interval}) {
    fits = fits && (length == 0 || steps % length == 0);
  }
  if (!fits) {
    ThrowError(ErrorKind::kShape,
               "oracle: scales change every {} and {} steps, sums are promoted "
               "every {}, and runs of {} and {} are transformed, but each must "
               "be a multiple of the least, and both runs the same. Give a "
               "product that fits.",
               ScaledSteps(a), ScaledSteps(b), interval, run, RunOf(b));
  }
  ScalarPieces result;
  result.stored_ends.assign(ends.begin(), ends.end());
  if (ends.empty()) result.stored_ends.push_back(depth);
  size_t stored = 0;
  for (size_t segment = 0; segment < result.stored_ends.size(); ++segment) {
    const size_t steps = result.stored_ends[segment] - stored;
    stored = result.stored_ends[segment];
    const size_t first = result.begins.back();
    const size_t end = first + (steps + run - 1) / run * run;
    result.begins.push_back(end);
    if (first == end) result.pieces.push_back({segment, first, end});
    for (size_t begin = first; begin < end;) {
      const size_t next = length == 0 ? end : std::min(begin + length, end);
      result.pieces.push_back({segment, begin, next});
      begin = next;
    }
  }
  return result;
}

PreparedSide PrepareSide(const ScalarOperand& operand,
                         const ScalarPieces& pieces, const TensorCore* core) {
  const Quantization* quantization = operand.quantization;
  const size_t whole = operand.values.rows();
  std::span<const size_t> tensor_ends =
      operand.down ? std::span<const size_t>(pieces.stored_ends)
                   : operand.tensor_ends;
  if (tensor_ends.empty()) tensor_ends = {&whole, 1};
  Matrix<float> changed;
  MatrixView<const float> values = operand.values;
  if (operand.before != nullptr) {
    changed = After(operand, tensor_ends);
    values = changed.view();
  }
  PreparedSide side;
  const size_t rows = operand.down ? values.cols() : values.rows();
  side.values.Resize(rows, pieces.depth());
  if (core != nullptr) side.exponents.Resize(rows, pieces.depth());
  if (quantization != nullptr &&
      (quantization->scale_format == ScaleFormat::kFp32 ||
       quantization->scaling == formats::Scaling::kTwoLevel)) {
    side.factors.Resize(rows, pieces.pieces.size());
  }
  size_t begin = 0;
  for (size_t number = 0; number < tensor_ends.size(); ++number) {
    const size_t end = tensor_ends[number];
    const size_t row = operand.down ? 0 : begin;
    const size_t step = operand.down ? pieces.begins[number] : 0;
    MatrixView<const float> part = values.Rows(begin, end - begin);
    begin = end;
    Matrix<float> turned;
    if (operand.down) {
      turned = Transposed(part);
      part = turned.view();
    }
    if (quantization != nullptr) {
      const auto write = [&](const ScalarTensor& tensor) {
        Write(tensor, *quantization, pieces, core, row, step, side);
      };
      if (operand.quantized != nullptr) {
        write(*operand.quantized);
      } else {
        write(ScalarQuantize(
            part, *quantization,
            StateOfTensor(operand.state, operand.first_tensor + number)));
      }
      continue;
    }
    for (size_t i = 0; i < part.rows(); ++i) {
      std::copy_n(part.Row(i), part.cols(), side.values.Row(row + i) + step);
      for (size_t k = 0; core != nullptr && k < part.cols(); ++k) {
        side.exponents(row + i, step + k) =
            static_cast<int16_t>(ExponentOf(part(i, k), kFp32Least));
      }
    }
  }
  if (core != nullptr && core->aligned == Aligned::kByValues) {
    ReadAsBf16(side);
  }
  return side;
}

}  // namespace isoloss::oracle
