// Computes the uncertainty of the mean of a dependent series by the stationary
// bootstrap.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace isoloss::stats {

/// Returns the mean block length that minimises the asymptotic error of the
/// stationary bootstrap's variance of the mean. It is at least 1 and at most
/// ceil(min(3 sqrt(n), n / 3)).
/// Special  1 for values that are all equal.
/// Errors   ConfigError for fewer than 8 values or one that is not finite.
/// Source   Politis, White, Econometric Rev. 23 (2004), 53-70, with the
///          correction of Patton, Politis, White, 28 (2009), 372-375.
double StationaryBlockLength(std::span<const double> values);

struct BootstrapOptions {
  /// The two-sided interval has this confidence, in (0, 1).
  double confidence = 0.95;
  /// The number of pseudo-series must meet (resamples + 1) (1 - confidence) / 2
  /// >= 1.
  int64_t resamples = 1999;
  uint64_t seed = 0;
  /// The mean length of a block, >= 1, is StationaryBlockLength if empty.
  std::optional<double> block_length = std::nullopt;
};

struct BootstrapInterval {
  double lower = 0;
  double upper = 0;
  /// This is the standard deviation of the resampled means.
  double standard_error = 0;
  double block_length = 1;
};

/// Returns the percentile interval for the mean of a stationary series. A
/// pseudo-series strings together blocks of consecutive values (circular,
/// geometric length) until it is as long as the series. The ends are order
/// statistics number (resamples + 1) (1 -+ confidence) / 2 of the resampled
/// means.
///
/// Like the HAC error the interval is too narrow for short or strongly
/// dependent series. These shares of 95 % intervals from 200 values cover the
/// mean: 94.6 % for a white series, 89.7 % for an AR(1) with coefficient 0.5,
/// and 84.7 % with 0.8 (bootstrap_coverage_test). The interval describes one
/// trajectory, never the spread between seeds.
/// Exact    depends on the values and options only: randomness is
///          counter-based.
/// Cost     O(resamples * n / block_length).
/// Errors   ConfigError for fewer than 8 values, one that is not finite, or an
///          option out of its range.
/// Source   Politis, Romano, J. Am. Stat. Assoc. 89 (1994), 1303-1313.
BootstrapInterval StationaryBootstrapMean(std::span<const double> values,
                                          const BootstrapOptions& options);

}  // namespace isoloss::stats
