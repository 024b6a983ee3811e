#include "isoloss/stats/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/stats/autocovariance.h"
#include "isoloss/stats/summary.h"

namespace isoloss::stats {
namespace {

void CheckValues(const char* function, std::span<const double> values) {
  const double mean = Mean(values);
  if (values.size() < 8 || !std::isfinite(mean)) {
    ThrowError(ErrorKind::kConfig,
               "{}: {} values with mean {}, but there must be at least 8 and "
               "all of them finite.",
               function, values.size(), mean);
  }
}

void CheckOptions(const BootstrapOptions& options) {
  const double rank =
      static_cast<double>(options.resamples + 1) * (1 - options.confidence) / 2;
  if (!(options.confidence > 0 && options.confidence < 1 && rank >= 1)) {
    ThrowError(ErrorKind::kConfig,
               "StationaryBootstrapMean: confidence {} of {} resamples, but "
               "the confidence must lie in (0, 1) and (resamples + 1) * (1 - "
               "confidence) / 2 be at least 1. Draw more resamples.",
               options.confidence, options.resamples);
  }
  if (options.block_length.has_value() &&
      !(*options.block_length >= 1 && std::isfinite(*options.block_length))) {
    ThrowError(ErrorKind::kConfig,
               "StationaryBootstrapMean: block_length is {}, but it must be "
               "at least 1.",
               *options.block_length);
  }
}

/// Returns the smallest m after which `quiet` autocorrelations in a row lie
/// within two standard errors, 2 sqrt(log10 n / n), of 0. It is the last known
/// lag if there is none.
size_t LastLoudLag(std::span<const double> gamma, size_t quiet, double n) {
  const double bound = 2 * std::sqrt(std::log10(n) / n) * gamma[0];
  size_t in_a_row = 0;
  for (size_t lag = 1; lag < gamma.size(); ++lag) {
    in_a_row = std::fabs(gamma[lag]) < bound ? in_a_row + 1 : 0;
    if (in_a_row == quiet) return lag - quiet;
  }
  return gamma.size() - 1;
}

/// Computes means of pseudo-series, block by block through running sums.
class Resampler {
 public:
  Resampler(std::span<const double> values, double block_length, uint64_t seed)
      : mean_(Mean(values)),
        log_continue_(std::log1p(-1 / block_length)),
        rng_(seed, StreamId("stats/bootstrap")) {
    // Deviations from the mean keep the running sums small.
    prefix_.push_back(0);
    for (const double value : values) {
      prefix_.push_back(prefix_.back() + (value - mean_));
    }
  }

  double Next() {
    const size_t n = prefix_.size() - 1;
    double sum = 0;
    for (size_t filled = 0; filled < n;) {
      const size_t start = rng_.Below(index_, n);
      const size_t length = std::min(BlockLength(n), n - filled);
      index_ += 2;
      sum += CircularSum(start, length);
      filled += length;
    }
    return mean_ + sum / static_cast<double>(n);
  }

 private:
  /// The length is geometric and at most n. A block length of 1 makes
  /// log_continue_ -infinity.
  size_t BlockLength(size_t n) const {
    const double more = std::log1p(-rng_.Uniform(index_ + 1)) / log_continue_;
    if (!(more < static_cast<double>(n))) return n;
    return 1 + static_cast<size_t>(more);
  }

  double CircularSum(size_t start, size_t length) const {
    const size_t n = prefix_.size() - 1;
    const size_t end = start + length;
    if (end <= n) return prefix_[end] - prefix_[start];
    return prefix_[n] - prefix_[start] + prefix_[end - n];
  }

  double mean_;
  double log_continue_;
  CounterRng rng_;
  uint64_t index_ = 0;
  std::vector<double> prefix_;
};

}  // namespace

double StationaryBlockLength(std::span<const double> values) {
  CheckValues("StationaryBlockLength", values);
  const double n = static_cast<double>(values.size());
  const double quiet = std::max(5.0, std::ceil(std::sqrt(std::log10(n))));
  const double known = std::min(n - 1, std::ceil(std::sqrt(n)) + quiet);
  const std::vector<double> gamma =
      Autocovariances(values, static_cast<int64_t>(known));
  if (!(gamma[0] > 0)) return 1;
  const size_t loud = LastLoudLag(gamma, static_cast<size_t>(quiet), n);
  const size_t used = std::min(2 * std::max<size_t>(loud, 1), gamma.size() - 1);
  double spectrum = gamma[0];
  double slope = 0;
  for (size_t k = 1; k <= used; ++k) {
    // The flat-top window is 1 up to half the width, then falls to 0.
    const double share = static_cast<double>(k) / static_cast<double>(used);
    const double weight = share <= 0.5 ? 1 : 2 * (1 - share);
    spectrum += 2 * weight * gamma[k];
    slope += 2 * weight * static_cast<double>(k) * gamma[k];
  }
  const double most = std::ceil(std::min(3 * std::sqrt(n), n / 3));
  // b^3 = 2 G^2 n / (2 g(0)^2).
  const double ratio = slope == 0 ? 0 : slope / spectrum;
  return std::clamp(std::cbrt(ratio * ratio * n), 1.0, most);
}

BootstrapInterval StationaryBootstrapMean(std::span<const double> values,
                                          const BootstrapOptions& options) {
  CheckValues("StationaryBootstrapMean", values);
  CheckOptions(options);
  BootstrapInterval result;
  result.block_length = options.block_length.has_value()
                            ? *options.block_length
                            : StationaryBlockLength(values);
  Resampler resampler(values, result.block_length, options.seed);
  std::vector<double> means(static_cast<size_t>(options.resamples));
  for (double& mean : means) mean = resampler.Next();
  std::sort(means.begin(), means.end());
  const double count = static_cast<double>(options.resamples);
  const auto rank =
      static_cast<size_t>((count + 1) * (1 - options.confidence) / 2);
  result.lower = means[rank - 1];
  result.upper = means[means.size() - rank];
  result.standard_error = Summarize(means).sd;
  return result;
}

}  // namespace isoloss::stats
