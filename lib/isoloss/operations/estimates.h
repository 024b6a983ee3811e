// Estimates short formulas whose operations may be done in any order.
#pragma once

#include <cmath>
#include <cstddef>

#include "isoloss/oracle/estimate.h"

namespace isoloss::operations {

/// Returns an estimate of `exact` by at most `roundings` roundings to FP32, of
/// numbers that are not larger than `size`. Each rounding moves a number by
/// 2^-24 of it at most, and all later operations keep that error. So all
/// roundings together are at most gamma_n size. None is finer than 2^-149.
inline oracle::Estimate Around(double exact, double size, size_t roundings) {
  const auto count = static_cast<double>(roundings);
  return {.exact = exact,
          .bound = oracle::Gamma(roundings) * size + count * oracle::kTiny,
          .noise = std::sqrt(count / 12.0) * oracle::Ulp(exact)};
}

}  // namespace isoloss::operations
