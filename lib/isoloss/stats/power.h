// Computes the exact power of the paired equivalence test, and how many pairs
// it needs.
#pragma once

#include <cstdint>
#include <optional>

#include "isoloss/stats/equivalence.h"

namespace isoloss::stats {

/// Describes a further one-sided t test of the same estimate.
struct UpperTest {
  double margin;
  double alpha;  ///< in (0, 1)
};

/// Returns the probability that two one-sided t tests pass, and a third one if
/// it is given. The estimate is
/// normal with the true mean `mean` and true standard error `standard_error`.
/// Its estimated variance is independent of it and has `degrees_of_freedom`.
///
/// Let u = s / sigma (chi distributed, divided by the root of its degrees of
/// freedom nu) and t = t_{1-alpha,nu}. The test passes iff the estimate lies
/// within margin - t u standard_error of 0, so that
///   power = integral over u of [Phi((margin - mean) / se - t u)
///                             - Phi((-margin - mean) / se + t u)]_+ f(u) du.
/// A third test limits the first term: its own margin and quantile stand there
/// where they give less. A one-sided test has no second term, and the result is
/// a noncentral t probability. Gauss-Kronrod quadrature has an absolute error
/// below 1e-9.
///
/// Special  standard_error 0: 1 if the test passes at `mean`, else 0.
/// Errors   ConfigError if an option is out of its range, mean is not finite,
///          standard_error is negative or not finite, or degrees_of_freedom is
///          below 1.
/// Source   Phillips, J. Pharmacokinet. Biopharm. 18 (1990), 137-144; the
///          integral is Owen's Q, Biometrika 52 (1965), 437-446.
double TwoOneSidedPower(double mean, double standard_error,
                        double degrees_of_freedom,
                        const EquivalenceOptions& options,
                        const std::optional<UpperTest>& also = std::nullopt);

/// Returns the probability that TestEquivalence of `pairs` independent normal
/// differences with this true mean and standard deviation is kInside, and that
/// the further test passes.
/// Errors   as TwoOneSidedPower; ConfigError for fewer than two pairs.
double EquivalencePower(double mean, double sd, int64_t pairs,
                        const EquivalenceOptions& options,
                        const std::optional<UpperTest>& also = std::nullopt);

/// Returns the smallest n >= 2 for which EquivalencePower is at least
/// options.power.
///
/// The search relies on a power that rises with n, which is so above one half.
/// (A small one may fall: two pairs are close together by luck more often than
/// three.)
/// Special  Empty if no number up to a million suffices, as when |mean| >=
///          margin.
/// Errors   as TwoOneSidedPower.
std::optional<int64_t> PairsForPower(double mean, double sd,
                                     const EquivalenceOptions& options);

/// Returns the smallest true mean for which the whole interval lies above the
/// margin with probability options.power. TestEquivalence of `pairs`
/// independent normal differences with this standard deviation is then
/// kOutside. The mean is
///   margin + delta sd / sqrt(n)  with  P(T_{n-1}(delta) >= t_{1-alpha,n-1}) =
///   power,
/// where T_nu(delta) is a noncentral t variable. By symmetry its negative
/// belongs to intervals below -margin. Bisection in delta has a relative error
/// below 1e-12.
///
/// Special  the margin for a standard deviation of 0.
/// Errors   as EquivalencePower.
double DetectableDifference(double sd, int64_t pairs,
                            const EquivalenceOptions& options);

/// Returns the upper end of a one-sided interval of a normal variable's
/// standard deviation. `sd` is that of `count` values, and the interval covers
/// the true one with probability `confidence`:
///   sd sqrt((count - 1) / chi^2_{1-confidence,count-1}).
/// Errors   ConfigError for fewer than two values, or unless confidence is in
///          (0, 1).
double UpperLimitOfSd(double sd, int64_t count, double confidence);

}  // namespace isoloss::stats
