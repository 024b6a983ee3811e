// Computes limits from a sample. A stated share of the population stays below a
// limit with a stated confidence.
#pragma once

#include <cstdint>
#include <span>

namespace isoloss::stats {

/// Returns k such that mean + k * sd of n independent normal values reaches the
/// quantile `coverage` of their distribution with probability `confidence`. k =
/// t'_{n-1,confidence}(z_coverage sqrt(n)) / sqrt(n), where t' is the
/// noncentral t quantile. It is exact for normal values only.
/// Errors   ConfigError unless count >= 2 and coverage and confidence lie in
///          (0, 1).
/// Source   Owen: Tables for Computing the Univariate Normal Tolerance
///          Limits (1963); ISO 16269-6:2014, annex; NIST/SEMATECH e-Handbook,
///          section 7.2.6.3.
double ToleranceFactor(int64_t count, double coverage, double confidence);

/// Returns (1 + #{null >= observed}) / (n + 1). This is the p-value of
/// `observed` if it and the n null values are exchangeable. It is never below 1
/// / (n + 1).
/// Special  An observed value that is not a number counts as larger than all.
/// Errors   ConfigError if a null value is NaN.
double OrderStatisticPValue(std::span<const double> null, double observed);

}  // namespace isoloss::stats
