// Estimates of short formulas whose operations may be done in any order.
#pragma once

#include <cmath>
#include <cstddef>

#include "isoloss/oracle/estimate.h"

namespace isoloss::operations {

/// `exact`, computed by at most so many roundings to FP32, of numbers of which
/// none is larger than `size`: each rounding moves a number by 2^-24 of it at
/// most, and all later operations carry that along, so that the sum of all is
/// at most gamma_n size. None is finer than 2^-149.
inline oracle::Estimate Around(double exact, double size, size_t roundings) {
  const auto count = static_cast<double>(roundings);
  return {.exact = exact,
          .bound = oracle::Gamma(roundings) * size + count * oracle::kTiny,
          .noise = std::sqrt(count / 12.0) * oracle::Ulp(exact)};
}

}  // namespace isoloss::operations
