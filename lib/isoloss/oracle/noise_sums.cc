#include "isoloss/oracle/noise_sums.h"

#include <algorithm>
#include <cmath>

namespace isoloss::oracle {
namespace {

/// Of the arithmetic's sums and of the rounding to FP32 that follows.
double VarianceOf(const Estimate& expected) {
  double variance = expected.noise * expected.noise;
  if (static_cast<double>(static_cast<float>(expected.exact)) !=
      expected.exact) {
    const double ulp = Ulp(expected.exact);
    variance += ulp * ulp / 12.0;
  }
  return variance;
}

/// Where the ascending order happens to be exact another one need not be: a
/// single element says nothing against its last place.
double LeastVariance(const Estimate& expected) {
  if (expected.bound == 0.0) return 0.0;
  const double ulp = Ulp(expected.exact);
  return ulp * ulp / 12.0;
}

}  // namespace

void NoiseSums::Add(size_t row, float value, const Estimate& expected) {
  double error = static_cast<double>(value) - expected.exact;
  const double variance = VarianceOf(expected);
  error_squared_ += error * error;
  expected_squared_ +=
      variance + expected.jump_probability * expected.jump * expected.jump;
  // A rare jump is no noise of its row: where it is nearer, it was one.
  if (expected.jump_probability > 0.0 &&
      std::fabs(error - expected.jump) < std::fabs(error)) {
    error -= expected.jump;
  }
  if (row >= rows_.size()) rows_.resize(row + 1);
  const double floored = std::max(variance, LeastVariance(expected));
  Row& sums = rows_[row];
  sums.errors += error * error;
  sums.variances += floored;
  sums.squares += floored * floored;
  sums.largest = std::max(sums.largest, floored);
  if (!(variance > 0.0)) return;
  const double away = std::signbit(expected.exact) ? -error : error;
  signed_errors_ += away / std::sqrt(floored);
  ++noisy_;
}

void NoiseSums::Merge(const NoiseSums& part) {
  rows_.resize(std::max(rows_.size(), part.rows_.size()));
  for (size_t i = 0; i < part.rows_.size(); ++i) {
    Row& sums = rows_[i];
    const Row& more = part.rows_[i];
    sums.errors += more.errors;
    sums.variances += more.variances;
    sums.squares += more.squares;
    sums.largest = std::max(sums.largest, more.largest);
  }
  error_squared_ += part.error_squared_;
  expected_squared_ += part.expected_squared_;
  signed_errors_ += part.signed_errors_;
  noisy_ += part.noisy_;
}

double NoiseSums::BeyondChance(const Row& row) {
  // Where overflow is near nothing is said of the row.
  if (row.errors == 0.0 || !std::isfinite(row.squares)) return 0.0;
  // Laurent, Massart, Annals of Statistics 28 (2000), lemma 1: a weighted sum
  // of squares of normal errors is above its mean by at most
  // 2 |w| sqrt(x) + 2 max(w) x, but with probability exp(-x).
  const double x = -std::log(runlog::kRowChance);
  const double chance =
      row.variances + 2.0 * std::sqrt(row.squares * x) + 2.0 * row.largest * x;
  return std::sqrt(row.errors / chance);
}

void NoiseSums::Fill(runlog::OracleRow& row) const {
  if (!(error_squared_ + expected_squared_ > 0.0)) return;
  row.noise_ratio = std::sqrt(error_squared_ / expected_squared_);
  row.row_noise_ratio = 0.0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const double ratio = BeyondChance(rows_[i]);
    if (row.noisiest_row >= 0 && !(ratio > row.row_noise_ratio)) continue;
    row.row_noise_ratio = ratio;
    row.noisiest_row = static_cast<int64_t>(i);
  }
  row.noisy_elements = noisy_;
  if (noisy_ > 0) {
    row.signed_error = signed_errors_ / static_cast<double>(noisy_);
  }
}

}  // namespace isoloss::oracle
