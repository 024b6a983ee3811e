#include "isoloss/oracle/noise_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_set>

namespace isoloss::oracle {
namespace {

/// The variance comes from the arithmetic's sums and from the rounding to FP32
/// that follows.
double VarianceOf(const Estimate& expected) {
  double variance = expected.noise * expected.noise;
  if (!FitsFp32(expected.exact)) {
    const double ulp = Ulp(expected.exact);
    variance += ulp * ulp / 12.0;
  }
  return variance;
}

/// The ascending order may be exact where another order rounds. So an error in
/// the last place of such an element is no evidence, even if the tensor has no
/// other noisy element.
double LeastVariance(const Estimate& expected) {
  if (expected.bound == 0.0) return 0.0;
  const double ulp = Ulp(expected.exact);
  return ulp * ulp / 12.0;
}

/// Spreads bits over all 64, as the finaliser of MurmurHash3 does.
uint64_t Mixed(uint64_t bits) {
  bits = (bits ^ bits >> 33) * 0xff51afd7ed558ccd;
  bits = (bits ^ bits >> 33) * 0xc4ceb9fe1a85ec53;
  return bits ^ bits >> 33;
}

}  // namespace

void NoiseSums::Add(size_t row, size_t column, float value,
                    const Estimate& expected) {
  double error = static_cast<double>(value) - expected.exact;
  const double variance = VarianceOf(expected);
  const double floored = std::max(variance, LeastVariance(expected));
  all_.Add(error,
           floored + expected.jump_probability * expected.jump * expected.jump);
  // A rare jump is no noise of its row. If the error is nearer to the jump than
  // to zero, a jump has happened.
  if (expected.jump_probability > 0.0 &&
      std::fabs(error - expected.jump) < std::fabs(error)) {
    error -= expected.jump;
  }
  if (row >= rows_.size()) rows_.resize(row + 1);
  Row& sums = rows_[row];
  sums.Add(error, floored);
  if (!(variance > 0.0)) return;
  const double away = std::signbit(expected.exact) ? -error : error;
  sums.signed_errors += away / std::sqrt(floored);
  sums.leans += expected.lean / std::sqrt(floored);
  ++sums.noisy;
  sums.content += Mixed(std::bit_cast<uint64_t>(expected.exact) ^
                        Mixed(uint64_t{column} + 1));
}

void NoiseSums::Merge(const NoiseSums& part) {
  rows_.resize(std::max(rows_.size(), part.rows_.size()));
  for (size_t i = 0; i < part.rows_.size(); ++i) {
    Row& sums = rows_[i];
    const Row& more = part.rows_[i];
    sums.Squares::Merge(more);
    sums.signed_errors += more.signed_errors;
    sums.leans += more.leans;
    sums.noisy += more.noisy;
    sums.content += more.content;
  }
  all_.Merge(part.all_);
}

void NoiseSums::Squares::Add(double error, double variance) {
  errors += error * error;
  variances += variance;
  squares += variance * variance;
  largest = std::max(largest, variance);
}

void NoiseSums::Squares::Merge(const Squares& part) {
  errors += part.errors;
  variances += part.variances;
  squares += part.squares;
  largest = std::max(largest, part.largest);
}

double NoiseSums::Squares::BeyondChance() const {
  if (errors == 0.0) return 0.0;
  // Laurent, Massart, Annals of Statistics 28 (2000), lemma 1, is about a
  // weighted sum of squares of normal errors. It exceeds its mean by more than
  // 2 |w| sqrt(x) + 2 max(w) x with a probability of at most exp(-x).
  const double x = -std::log(runlog::kRowChance);
  double spread = std::sqrt(squares * x);
  // Squares may overflow where |w| does not; it is at most the sum of w.
  if (!std::isfinite(spread)) spread = variances * std::sqrt(x);
  const double chance = variances + 2.0 * spread + 2.0 * largest * x;
  return std::sqrt(errors / chance);
}

void NoiseSums::Fill(runlog::OracleRow& row) const {
  if (!(all_.errors + all_.variances > 0.0)) return;
  row.noise_ratio = std::sqrt(all_.errors / all_.variances);
  row.tensor_noise_ratio = all_.BeyondChance();
  row.row_noise_ratio = 0.0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const double ratio = rows_[i].BeyondChance();
    if (row.noisiest_row >= 0 && !(ratio > row.row_noise_ratio)) continue;
    row.row_noise_ratio = ratio;
    row.noisiest_row = static_cast<int64_t>(i);
  }
  FillSigned(row);
}

void NoiseSums::FillSigned(runlog::OracleRow& row) const {
  std::unordered_set<uint64_t> seen;
  double sum = 0.0;
  double leans = 0.0;
  for (const Row& sums : rows_) {
    if (sums.noisy == 0 || !seen.insert(sums.content).second) continue;
    sum += sums.signed_errors;
    leans += sums.leans;
    row.noisy_elements += sums.noisy;
  }
  if (row.noisy_elements > 0) {
    const double beyond = std::max(0.0, std::fabs(sum) - leans);
    row.signed_error =
        std::copysign(beyond, sum) / static_cast<double>(row.noisy_elements);
  }
}

}  // namespace isoloss::oracle
