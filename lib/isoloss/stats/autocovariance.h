// Computes the error of a mean of values that depend on their predecessors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace isoloss::stats {

/// Returns gamma_k = 1/n sum over t of (x_t - mean)(x_{t-k} - mean) for k = 0
/// .. lags.
/// Errors   ConfigError unless 0 <= lags < n and all values are finite.
std::vector<double> Autocovariances(std::span<const double> values,
                                    int64_t lags);

/// Returns Newey and West's automatic lag for the Bartlett kernel without
/// prewhitening: floor(1.1447 (s1 / s0)^(2/3) n^(1/3)). Here s0 = gamma_0 + 2
/// sum gamma_j and s1 = 2 sum j gamma_j over j = 1 .. floor(4 (n / 100)^(2/9)).
/// This library limits the lag to (n - 1) / 2, since the estimate is all noise
/// beyond it.
/// Special  0 for values that are all equal.
/// Errors   ConfigError for fewer than 4 values or one that is not finite.
/// Source   Newey, West, Rev. Econ. Stud. 61 (1994), 631-653,
///          equations 3.8-3.10 and table II.
int64_t NeweyWestLag(std::span<const double> values);

struct HacError {
  /// The standard error of the mean is never NaN, and 0 if all values are
  /// equal.
  double standard_error = 0;
  int64_t lag = 0;
};

/// Returns the heteroskedasticity and autocorrelation consistent standard error
/// of the mean with the Bartlett kernel:
///   SE^2 = (gamma_0 + 2 sum_{j <= lag} (1 - j / (lag + 1)) gamma_j) / (n - 1).
/// For lag 0 it is the ordinary sd / sqrt(n). The lag is NeweyWestLag if none
/// is given.
///
/// The error is too small for short or strongly dependent series. These shares
/// of 95 % normal intervals with the automatic lag from 200 values cover the
/// mean: 93.7 % for a white series, 90.8 % for an AR(1) with coefficient 0.5,
/// and 84.2 % with 0.8 (autocovariance_coverage_test). The error describes one
/// trajectory, never the spread between seeds.
/// Errors   ConfigError for fewer than 4 values, one that is not finite, or a
///          lag outside 0 .. n - 1.
/// Source   Newey, West, Econometrica 55 (1987), 703-708.
HacError NeweyWestError(std::span<const double> values,
                        std::optional<int64_t> lag = std::nullopt);

}  // namespace isoloss::stats
