#include "isoloss/oracle/comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "isoloss/base/error.h"

namespace isoloss::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool SameValue(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b;  // +0 and -0 are equal
}

/// Returns the distance of `exact` from the reals that round to `value`.
double DistanceToInterval(Grid grid, float value, double exact) {
  const double low = Boundary(grid, value, /*up=*/false);
  const double high = Boundary(grid, value, /*up=*/true);
  if (std::isnan(exact)) return kInfinity;
  return std::max({0.0, low - exact, exact - high});
}

/// Returns the probability that FP32's noise carries `expected` out of the
/// interval of reals that round to `want`.
double FlipProbability(Grid grid, float want, const Estimate& expected) {
  if (!std::isfinite(want)) return 0.0;
  double probability = 0.0;
  if (expected.noise > 0.0) {
    for (const bool up : {false, true}) {
      const double boundary = Boundary(grid, want, up);
      probability +=
          TailProbability(std::fabs(boundary - expected.exact), expected.noise);
    }
  }
  if (expected.jump_probability > 0.0 &&
      RoundTo(grid, expected.exact + expected.jump) != want) {
    probability += expected.jump_probability;
  }
  return std::min(1.0, probability);
}

}  // namespace

void Comparison::AddAny(size_t row, size_t column, float value,
                        const Estimate& expected) {
  ++row_.elements;
  const float want = RoundTo(grid_, expected.exact);
  const double probability = FlipProbability(grid_, want, expected);
  row_.expected_flips += probability;
  if (grid_ == Grid::kFp32 && std::isfinite(value) && std::isfinite(want)) {
    noise_.Add(row, column, value, expected);
  }
  const bool equal = SameValue(value, want);
  const bool flip = !equal && AddDifferent(row, column, value, want, expected);
  if (equal) ++row_.equal;
  if (grid_ != Grid::kFp32) {
    flip_clusters_.Add(expected.exact, flip, probability);
  }
}

bool Comparison::AddDifferent(size_t row, size_t column, float value,
                              float want, const Estimate& expected) {
  double ratio = kInfinity;
  // A value without a bound cannot be explained.
  const bool comparable = std::isfinite(expected.exact) &&
                          std::isfinite(expected.bound) && !std::isnan(value);
  bool flip = false;
  if (comparable) {
    const float low = RoundTo(grid_, expected.exact - expected.bound);
    const float high = RoundTo(grid_, expected.exact + expected.bound);
    flip = low <= value && value <= high;
    if (std::isfinite(value)) {
      const double distance = DistanceToInterval(grid_, value, expected.exact);
      ratio =
          expected.bound > 0.0
              ? distance / expected.bound
              : 1.0 + std::fabs(static_cast<double>(value) - expected.exact) /
                          Ulp(expected.exact);
    }
  }
  // At a tie `flip` and `ratio` may disagree in the last bit.
  ratio =
      flip ? std::min(ratio, 1.0) : std::max(ratio, std::nextafter(1.0, 2.0));
  if (flip) {
    ++row_.flips;
  } else {
    CountOther(row);
  }
  if (flip && std::fabs(value) < std::fabs(want)) ++row_.flips_toward_zero;
  KeepWorst(row, column, value, expected.exact, ratio);
  return flip;
}

void Comparison::AddExact(size_t row, size_t column, float value,
                          float expected) {
  ++row_.elements;
  if (std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(expected) ||
      (std::isnan(value) && std::isnan(expected))) {
    ++row_.equal;
    return;
  }
  AddOther(row, column, value, static_cast<double>(expected), 0);
}

void Comparison::AddExactRow(size_t row, const float* values,
                             const float* expected, size_t columns) {
  if (std::memcmp(values, expected, columns * sizeof(float)) == 0) {
    CountEqual(columns);
    return;
  }
  for (size_t i = 0; i < columns; ++i) {
    AddExact(row, i, values[i], expected[i]);
  }
}

void Comparison::AddEqual(size_t elements) {
  ISOLOSS_ASSERT(grid_ != Grid::kFp32);
  CountEqual(elements);
}

void Comparison::AddOther(size_t row, size_t column, float value,
                          double expected) {
  AddOther(row, column, value, expected, 1);
}

void Comparison::AddOther(size_t row, size_t column, float value,
                          double expected, int64_t elements) {
  row_.elements += elements;
  CountOther(row);
  const double difference = std::fabs(static_cast<double>(value) - expected);
  const bool finite = std::isfinite(difference);
  KeepWorst(row, column, value, expected,
            finite ? 1.0 + difference / Ulp(expected) : kInfinity);
}

void Comparison::AddUnseen(int64_t elements, int64_t draws) {
  if (elements == 0) return;
  row_.unseen_elements += elements;
  // Wrong elements may all lie in the part that has the fewest draws.
  if (draws > 0 && (row_.draws == 0 || draws < row_.draws)) row_.draws = draws;
}

void Comparison::CountOther(size_t row) {
  ++row_.other;
  if (row >= wrong_rows_.size()) wrong_rows_.resize(row + 1);
  wrong_rows_[row] = true;
}

void Comparison::KeepWorst(size_t row, size_t column, float value, double exact,
                           double ratio) {
  if (has_worst_ && !(ratio > row_.worst_ratio)) return;
  has_worst_ = true;
  row_.worst_ratio = ratio;
  row_.worst_row = static_cast<int64_t>(row);
  row_.worst_column = static_cast<int64_t>(column);
  row_.worst_value = static_cast<double>(value);
  row_.worst_expected = exact;
}

void Comparison::Merge(const Comparison& part) {
  const bool worse = part.has_worst_ &&
                     (!has_worst_ || part.row_.worst_ratio > row_.worst_ratio);
  runlog::OracleRow sum = worse ? part.row_ : row_;
  sum.elements = row_.elements + part.row_.elements;
  sum.equal = row_.equal + part.row_.equal;
  sum.flips = row_.flips + part.row_.flips;
  sum.other = row_.other + part.row_.other;
  sum.flips_toward_zero = row_.flips_toward_zero + part.row_.flips_toward_zero;
  sum.expected_flips = row_.expected_flips + part.row_.expected_flips;
  sum.unseen_elements = row_.unseen_elements;
  sum.draws = row_.draws;
  row_ = sum;
  AddUnseen(part.row_.unseen_elements, part.row_.draws);
  has_worst_ = has_worst_ || part.has_worst_;
  if (part.wrong_rows_.size() > wrong_rows_.size()) {
    wrong_rows_.resize(part.wrong_rows_.size());
  }
  for (size_t r = 0; r < part.wrong_rows_.size(); ++r) {
    if (part.wrong_rows_[r]) wrong_rows_[r] = true;
  }
  noise_.Merge(part.noise_);
  flip_clusters_.Merge(part.flip_clusters_);
}

runlog::OracleRow Comparison::Row() const {
  runlog::OracleRow row = row_;
  row.noise_ratio = row.tensor_noise_ratio = row.row_noise_ratio =
      row.signed_error = std::numeric_limits<double>::quiet_NaN();
  row.noisiest_row = -1;
  if (grid_ == Grid::kFp32) noise_.Fill(row);
  flip_clusters_.Fill(row);
  if (!has_worst_) {
    row.worst_row = row.worst_column = -1;
    row.worst_value = row.worst_expected =
        std::numeric_limits<double>::quiet_NaN();
  }
  return row;
}

}  // namespace isoloss::oracle
