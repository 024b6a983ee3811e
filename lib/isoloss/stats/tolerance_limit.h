// Limits that a stated share of a population stays below, with a stated
// confidence, from a sample of it.
#pragma once

#include <cstdint>
#include <span>

namespace isoloss::stats {

/// The k for which mean + k * sd of n independent normal values is at or above
/// the quantile `coverage` of their distribution with probability
/// `confidence`: k = t'_{n-1,confidence}(z_coverage sqrt(n)) / sqrt(n), t' the
/// noncentral t quantile. Exact for normal values only.
/// Errors   ConfigError unless count >= 2 and coverage and confidence lie in
///          (0, 1).
/// Source   Owen: Tables for Computing the Univariate Normal Tolerance
///          Limits (1963); ISO 16269-6:2014, annex; NIST/SEMATECH e-Handbook,
///          section 7.2.6.3.
double ToleranceFactor(int64_t count, double coverage, double confidence);

/// (1 + #{null >= observed}) / (n + 1): the p-value of `observed` under the
/// hypothesis that it and the n null values are exchangeable. Never below
/// 1 / (n + 1).
/// Special  An observed value that is not a number counts as larger than all.
/// Errors   ConfigError if a null value is NaN.
double OrderStatisticPValue(std::span<const double> null, double observed);

}  // namespace isoloss::stats
