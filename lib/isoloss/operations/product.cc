#include "isoloss/operations/product.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/operations/predicted_sums.h"
#include "isoloss/operations/rows.h"
#include "isoloss/operations/scale_changes.h"
#include "isoloss/oracle/scalar_product.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::ScalarOperand;
using oracle::ScalarProduct;
using oracle::ScalarTensor;

/// Adds the bias before the last rounding. The sum may begin with the bias:
/// then each of K additions rounds it, too.
Estimate WithBias(const Product& product, const Factors& factors, size_t depth,
                  const Estimate& sum, size_t column) {
  if (product.bias == nullptr) return sum;
  const double term = factors.bias * static_cast<double>(product.bias[column]);
  const Estimate bias = {.exact = term,
                         .bound = oracle::Gamma(depth + 1) * std::fabs(term)};
  if (product.bias_after) {
    return oracle::Rounded32(oracle::RoundedOnTheWay(product.grid, sum) +
                             Estimate{.exact = bias.exact});
  }
  return oracle::Rounded32(sum + bias);
}

/// Cuts an FP32 number off toward zero, `bits` bits after the leading one.
float CutOff(double value, int bits) {
  auto word = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (std::fabs(static_cast<double>(std::bit_cast<float>(word))) >
      std::fabs(value)) {
    --word;  // rounding to FP32 went away from zero
  }
  constexpr int kFp32Bits = 23;
  return std::bit_cast<float>(word >> (kFp32Bits - bits) << (kFp32Bits - bits));
}

constexpr int kBf16Bits = 7;

/// Cuts off to BF16; the bound covers the cut of any sum within its bound.
Estimate CutToBf16(const Estimate& sum) {
  const float want = CutOff(sum.exact, kBf16Bits);
  const auto exact = static_cast<double>(want);
  const auto low =
      static_cast<double>(CutOff(sum.exact - sum.bound, kBf16Bits));
  const auto high =
      static_cast<double>(CutOff(sum.exact + sum.bound, kBf16Bits));
  return {.exact = exact, .bound = std::max(exact - low, high - exact)};
}

/// Estimates the sum of any accumulator that aligns products to the largest of
/// them and of the sum, and keeps `sum_bits` bits. Each of `depth` products
/// loses up to a unit of the last bit, toward zero; losses of either sign
/// cancel in part. The bound is four standard deviations of their sum. The
/// largest possible loss would explain anything.
Estimate LossySum(const Product& product, const oracle::PreparedSide& a,
                  const oracle::PreparedSide& b,
                  const oracle::ScalarPieces& pieces, size_t i, size_t j) {
  double total = 0.0;
  double largest = 0.0;
  size_t depth = 0;
  for (size_t p = 0; p < pieces.pieces.size(); ++p) {
    const auto factor = static_cast<double>(a.Factor(i, p) * b.Factor(j, p));
    const auto& piece = pieces.pieces[p];
    for (size_t k = piece.begin; k < piece.end; ++k) {
      const double term = static_cast<double>(a.values(i, k)) *
                          static_cast<double>(b.values(j, k)) * factor;
      total += term;
      largest = std::max({largest, std::fabs(term), std::fabs(total)});
    }
    depth += piece.end - piece.begin;
  }
  return {.exact = total,
          .bound = 4 * std::sqrt(static_cast<double>(depth)) *
                   std::ldexp(largest, -product.sum_bits)};
}

/// Compares sums that are cut off now and then. If FP32 errors reach over a
/// cut, the result may have one unit of the last bit more or less.
void CompareCut(const Product& product, const ProductGroup& group,
                Comparison& comparison) {
  const ScalarOperand left = OperandOf(group.left);
  const ScalarOperand right = OperandOf(group.right);
  const size_t depth = group.left.depth();
  const oracle::ScalarPieces pieces = oracle::PiecesOf(
      left.quantization, right.quantization, product.sum_steps, {}, depth);
  const oracle::PreparedSide a = PrepareSide(left, pieces, nullptr);
  const oracle::PreparedSide b = PrepareSide(right, pieces, nullptr);
  for (size_t i = 0; i < a.values.rows(); ++i) {
    for (size_t j = 0; j < b.values.rows(); ++j) {
      const size_t row = group.first_row + i;
      if (product.loses_bits) {
        comparison.Add(row, j, product.output(row, j),
                       WithBias(product, product.factors, depth,
                                LossySum(product, a, b, pieces, i, j), j));
        continue;
      }
      float total = 0.0f;
      for (size_t p = 0; p < pieces.pieces.size(); ++p) {
        double sum = 0.0;
        for (size_t k = pieces.pieces[p].begin; k < pieces.pieces[p].end; ++k) {
          sum += static_cast<double>(a.values(i, k)) *
                 static_cast<double>(b.values(j, k));
        }
        sum *= static_cast<double>(a.Factor(i, p) * b.Factor(j, p));
        total = CutOff(static_cast<double>(total) + sum, product.sum_bits);
      }
      const auto exact = static_cast<double>(total);
      const Estimate estimate = {
          .exact = exact,
          .bound = std::ldexp(oracle::Ulp(exact), 23 - product.sum_bits)};
      comparison.Add(row, j, product.output(row, j),
                     WithBias(product, product.factors, depth, estimate, j));
    }
  }
}

/// Returns what codes make of a result.
double FromCodes(const Product& product, double result) {
  const double rounded = RoundTo(product.grid, result);
  const auto scaled = static_cast<float>(rounded / product.code_scale);
  return static_cast<double>(formats::RoundToFormat(
             *product.codes_of_output, scaled, formats::Overflow::kSaturate)) *
         product.code_scale;
}

/// The bound covers the codes of any result within its bound, which two FP32
/// roundings of the scale and of the quotient widen.
Estimate FromCodes(const Product& product, const Estimate& result) {
  const double reach =
      result.bound + (product.code_scale == 1.0 ? 0.0
                                                : 4 * oracle::kUnitRoundoff *
                                                      std::fabs(result.exact));
  const double exact = FromCodes(product, result.exact);
  return {.exact = exact,
          .bound = std::max(exact - FromCodes(product, result.exact - reach),
                            FromCodes(product, result.exact + reach) - exact)};
}

const Factors& FactorsOf(const Product& product, size_t row) {
  static constexpr Factors kNone;
  return product.factor_rows == nullptr || Marks(*product.factor_rows, row)
             ? product.factors
             : kNone;
}

/// Returns what becomes of a sum until its last rounding.
Estimate ResultOf(const Product& product, size_t depth, const Estimate& dot,
                  size_t row, size_t column) {
  const Factors& factors = FactorsOf(product, row);
  Estimate sum =
      WithBias(product, factors, depth, dot * factors.product, column);
  if (product.through_fp16) {
    sum = oracle::RoundedOnTheWay(oracle::Grid::kFp16, sum);
  }
  if (product.cuts_output) sum = CutToBf16(sum);
  if (factors.result != 1.0) {
    sum = oracle::Rounded32(oracle::RoundedOnTheWay(product.grid, sum) *
                            factors.result);
  }
  return product.codes_of_output == nullptr ? sum : FromCodes(product, sum);
}

using UseSum =
    std::function<void(size_t row, size_t column, const Estimate& sum)>;

void ForEachEstimate(const Product& product, const ProductGroup& group,
                     const UseSum& use) {
  precision::GemmPrecision precision;
  precision.accumulation = product.arithmetic.accumulation;
  const ScalarOperand left = OperandOf(group.left);
  const size_t depth = group.left.depth();
  const ScalarProduct sums(left, OperandOf(group.right), precision);
  sums.ForEach([&](size_t i, size_t j, const Estimate& dot) {
    const size_t row = group.first_row + i;
    use(row, j, ResultOf(product, depth, dot, row, j));
  });
}

/// Calls use(row, column, result) for each element, to the bit.
void ForEachResult(
    const Product& product, PredictedSums predicted, size_t first_row,
    const std::function<void(size_t row, size_t column, float result)>& use) {
  Matrix<float> sums;
  for (size_t first = 0; first < predicted.rows(); first += sums.rows()) {
    sums.ResizeUninitialized(
        std::min(predicted.StripRows(), predicted.rows() - first),
        predicted.cols());
    predicted.Rows(first, sums);
    for (size_t i = 0; i < sums.rows(); ++i) {
      const size_t row = first_row + first + i;
      for (size_t j = 0; j < sums.cols(); ++j) {
        use(row, j, ResultOf(product, sums(i, j), row, j));
      }
    }
  }
}

/// Fixes both sides if only one of them is transformed. Then the products read
/// what the transforms made of them.
void FixTransforms(ProductGroup& group) {
  const auto& left = group.left.quantization;
  const auto& right = group.right.quantization;
  const auto transforms = [](const auto& quantization) {
    return quantization && quantization->transforms();
  };
  if (transforms(left) == transforms(right)) return;
  for (Side* side : {&group.left, &group.right}) {
    if (!side->Fix() || side->fixed == nullptr ||
        side->fixed->codes.cols() != side->depth()) {
      return;
    }
  }
  for (Side* side : {&group.left, &group.right}) {
    side->quantization->transform = formats::Transform::kNone;
  }
}

/// Returns false if a side's change has nothing to change.
bool CompareGroup(const Product& product, const ProductGroup& group,
                  Comparison& comparison, Deviations* deviations) {
  ProductGroup changed = group;
  for (Side* side : {&changed.left, &changed.right}) {
    if (side->needs_fixing() && !side->Fix()) return false;
  }
  FixTransforms(changed);
  if (product.sum_bits == 0 && product.arithmetic.has_bits()) {
    ForEachResult(product, PredictedSums(changed, product.arithmetic),
                  group.first_row, [&](size_t row, size_t j, float result) {
                    const float value = product.output(row, j);
                    const bool are_zero = value == 0.0f && result == 0.0f;
                    comparison.AddExact(row, j, value,
                                        are_zero ? value : result);
                    if (deviations != nullptr) {
                      deviations->Add(row, j, value, result);
                    }
                  });
    return true;
  }
  if (product.sum_bits > 0) {
    CompareCut(product, changed, comparison);
    return true;
  }
  ForEachEstimate(product, changed,
                  [&](size_t row, size_t j, const Estimate& sum) {
                    comparison.Add(row, j, product.output(row, j), sum);
                  });
  return true;
}

}  // namespace

ScalarOperand OperandOf(const Side& side) {
  return {.values = side.values,
          .down = side.down,
          .quantization = side.quantization ? &*side.quantization : nullptr,
          .quantized = side.fixed.get(),
          .state = side.state,
          .before = side.before ? &*side.before : nullptr};
}

float ResultOf(const Product& product, float dot, size_t row, size_t column) {
  const Factors& factors = FactorsOf(product, row);
  float sum = static_cast<float>(static_cast<double>(dot) * factors.product);
  const auto rounded = [&](float value) {
    return RoundTo(product.grid, static_cast<double>(value));
  };
  if (product.bias != nullptr) {
    const auto bias = static_cast<float>(
        factors.bias * static_cast<double>(product.bias[column]));
    sum = (product.bias_after ? rounded(sum) : sum) + bias;
  }
  if (product.through_fp16) {
    sum = RoundTo(oracle::Grid::kFp16, static_cast<double>(sum));
  }
  if (product.cuts_output) sum = CutOff(static_cast<double>(sum), kBf16Bits);
  if (factors.result != 1.0) {
    sum =
        static_cast<float>(static_cast<double>(rounded(sum)) * factors.result);
  }
  if (product.codes_of_output != nullptr) {
    sum = static_cast<float>(FromCodes(product, static_cast<double>(sum)));
  }
  return rounded(sum);
}

void Side::Own(Matrix<float> matrix) {
  owned = std::make_shared<const Matrix<float>>(std::move(matrix));
  values = owned->view();
}

void Side::SetHistory(float amax) {
  state.history.reset();
  if (amax > 0.0f) {
    state.history =
        std::ldexp(amax, static_cast<int>(std::clamp(margin, -64.0, 64.0)));
  }
}

float Side::LatestAmax() const {
  return amax_history.empty() ? 0.0f : amax_history.back();
}

float Side::LargestAmax() const {
  return amax_history.empty() ? 0.0f : *std::ranges::max_element(amax_history);
}

bool Side::Fix() {
  if (!quantization) return change == nullptr;
  std::optional<ScalarTensor> tensor = Quantized(*this);
  if (!tensor) return false;
  fixed = std::make_shared<const ScalarTensor>(std::move(*tensor));
  change = nullptr;
  before.reset();
  return true;
}

static ScalarTensor CopyOf(const ScalarTensor& tensor) {
  ScalarTensor copy;
  for (const auto& [from, to] : {std::pair{&tensor.elements, &copy.elements},
                                 {&tensor.codes, &copy.codes}}) {
    to->ResizeUninitialized(from->rows(), from->cols());
    std::copy_n(from->data(), from->size(), to->data());
  }
  copy.scales = tensor.scales;
  copy.cell_rows = tensor.cell_rows;
  copy.cell_cols = tensor.cell_cols;
  copy.tensor_scale = tensor.tensor_scale;
  return copy;
}

/// Returns the tensor that the quantisation makes of the values.
static ScalarTensor QuantizedValues(const Side& side) {
  Matrix<float> turned;
  MatrixView<const float> values = side.values;
  if (side.before) {
    turned = ScalarDequantize(oracle::ScalarQuantize(values, *side.before),
                              values.cols());
    values = turned.view();
  }
  if (side.down) {
    turned = Transposed(values);
    values = turned.view();
  }
  ScalarTensor tensor =
      oracle::ScalarQuantize(values, *side.quantization, side.state);
  if (side.rounds_rotation && side.quantization->transforms()) {
    for (size_t i = 0; i < tensor.elements.size(); ++i) {
      float& element = tensor.elements.data()[i];
      element = formats::RoundToBf16(element);
    }
    const std::vector<float> largest = LargestOfCells(tensor);
    FollowLargest(largest, LargestOf(largest), *side.quantization, tensor);
  }
  if (side.shared_amax) {
    const bool is_whole = side.quantization->cell == formats::Cell{0, 0};
    FollowLargest(
        is_whole ? std::vector<float>(tensor.scales.size(), *side.shared_amax)
                 : LargestOfCells(tensor),
        *side.shared_amax, *side.quantization, tensor);
  }
  if (side.four_over_six && side.quantization->scales_tensor() &&
      side.quantization->element->name == "e2m1") {
    oracle::ChooseFourOrSix(*side.four_over_six, *side.quantization, tensor);
  }
  return tensor;
}

std::optional<ScalarTensor> Quantized(const Side& side) {
  if (!side.quantization) return std::nullopt;
  ScalarTensor tensor =
      side.fixed != nullptr ? CopyOf(*side.fixed) : QuantizedValues(side);
  if (side.change != nullptr && !side.change(tensor, *side.quantization)) {
    return std::nullopt;
  }
  return tensor;
}

std::optional<Comparison> Compare(const Product& product,
                                  Deviations* deviations) {
  Comparison comparison(product.grid);
  try {
    for (const ProductGroup& group : product.groups) {
      if (!CompareGroup(product, group, comparison, deviations)) {
        return std::nullopt;
      }
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kShape) throw;
    return std::nullopt;
  }
  return comparison;
}

void ForEachSum(const Product& product, const UseSum& use) {
  for (const ProductGroup& group : product.groups) {
    if (!product.arithmetic.has_bits()) {
      ForEachEstimate(product, group, use);
      continue;
    }
    ForEachResult(product, PredictedSums(group, product.arithmetic),
                  group.first_row, [&](size_t row, size_t j, float result) {
                    use(row, j, {.exact = static_cast<double>(result)});
                  });
  }
}

double MultiplyAdds(const Product& product) {
  double sum = 0.0;
  for (const ProductGroup& group : product.groups) {
    const MatrixView<const float>& left = group.left.values;
    sum += static_cast<double>(left.rows()) * static_cast<double>(left.cols()) *
           static_cast<double>(product.output.cols());
  }
  return sum;
}

}  // namespace isoloss::operations
