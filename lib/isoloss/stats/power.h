// Exact power of the paired equivalence test, and the pairs it takes.
#pragma once

#include <cstdint>
#include <optional>

#include "isoloss/stats/equivalence.h"

namespace isoloss::stats {

/// Probability that two one-sided t tests pass when an estimate with the true
/// mean `mean` and true standard error `standard_error` is normal and its
/// estimated variance, independent of it, has `degrees_of_freedom`.
///
/// With u = s / sigma (chi distributed, divided by the root of its degrees of
/// freedom nu) and t = t_{1-alpha,nu} the test passes iff the estimate lies
/// within margin - t u standard_error of 0, so that
///   power = integral over u of [Phi((margin - mean) / se - t u)
///                             - Phi((-margin - mean) / se + t u)]_+ f(u) du.
/// One-sided, the second term is absent and the result is a noncentral t
/// probability. Gauss-Kronrod quadrature, absolute error below 1e-9.
///
/// Special  standard_error 0: 1 if the test passes at `mean`, else 0.
/// Errors   ConfigError if an option is out of its range, mean is not finite,
///          standard_error is negative or not finite, or degrees_of_freedom is
///          below 1.
/// Source   Phillips, J. Pharmacokinet. Biopharm. 18 (1990), 137-144; the
///          integral is Owen's Q, Biometrika 52 (1965), 437-446.
double TwoOneSidedPower(double mean, double standard_error,
                        double degrees_of_freedom,
                        const EquivalenceOptions& options);

/// Probability that TestEquivalence of `pairs` independent normal differences
/// with this true mean and standard deviation is kInside.
/// Errors   as TwoOneSidedPower; ConfigError for fewer than two pairs.
double EquivalencePower(double mean, double sd, int64_t pairs,
                        const EquivalenceOptions& options);

/// Smallest n >= 2 for which EquivalencePower is at least options.power.
///
/// Once above one half the power rises with n, which the search relies on. (A
/// small one may fall: two pairs are close together by luck more often than
/// three.)
/// Special  Empty if no number up to a million suffices, as when |mean| >=
///          margin.
/// Errors   as TwoOneSidedPower.
std::optional<int64_t> PairsForPower(double mean, double sd,
                                     const EquivalenceOptions& options);

/// Smallest true mean for which TestEquivalence of `pairs` independent normal
/// differences with this standard deviation is kOutside with probability
/// options.power, because the whole interval lies above the margin:
///   margin + delta sd / sqrt(n)  with  P(T_{n-1}(delta) >= t_{1-alpha,n-1}) =
///   power,
/// T_nu(delta) a noncentral t variable. By symmetry its negative is that of
/// intervals below -margin. Bisection in delta, relative error below 1e-12.
///
/// Special  the margin for a standard deviation of 0.
/// Errors   as EquivalencePower.
double DetectableDifference(double sd, int64_t pairs,
                            const EquivalenceOptions& options);

}  // namespace isoloss::stats
