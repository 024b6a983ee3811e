// The entropy of a token's scores, as score_entropy.h defines it. It is
// constexpr, so that kernels of a device can share this text.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "isoloss/kernels/elementary.h"

namespace isoloss::kernels {

/// Takes logarithms of floats by a table: m in [1, 2) is c (1 + r), c the
/// middle of one of 512 equal intervals, |r| <= 2^-10, ln(1 + r) = r - r^2 / 2
/// + r^3 / 3. The rest of the series and the FP64 operations lose less than
/// 3e-13.
struct ScoreLog {
  static constexpr int kIntervalBits = 9;
  static constexpr size_t kIntervals = size_t{1} << kIntervalBits;
  struct Interval {
    double reciprocal;
    double log;
  };

  const Interval* intervals;  ///< kIntervals of them

  static constexpr Interval IntervalOf(size_t i) {
    const double middle =
        1.0 + (static_cast<double>(i) + 0.5) / static_cast<double>(kIntervals);
    return {1.0 / middle, Log(middle)};
  }

  /// Returns ln x of a normal number, and some finite number if x is zero,
  /// subnormal or not finite.
  constexpr double operator()(float x) const {
    constexpr double kLn2 = 0.693147180559945309417;
    constexpr uint32_t kMantissa = 0x007fffff;
    constexpr uint32_t kOne = 0x3f800000;
    const auto bits = std::bit_cast<uint32_t>(x);
    const Interval interval =
        intervals[(bits & kMantissa) >> (23 - kIntervalBits)];
    const auto mantissa =
        static_cast<double>(std::bit_cast<float>((bits & kMantissa) | kOne));
    const auto exponent = static_cast<int32_t>(bits >> 23 & 0xff) - 127;
    const double r = mantissa * interval.reciprocal - 1.0;
    return (static_cast<double>(exponent) * kLn2 + interval.log) +
           (r - r * r * (0.5 - r * (1.0 / 3.0)));
  }
};

constexpr double ScoreEntropyOf(const ScoreLog& log, const float* scores,
                                size_t count) {
  constexpr size_t kSums = 4;
  double sums[kSums] = {};
  double products[kSums] = {};
  for (size_t e = 0; e < count; ++e) {
    const auto value = static_cast<double>(scores[e]);
    sums[e % kSums] += value;
    products[e % kSums] += value * log(scores[e]);
  }
  const double sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  const double product =
      (products[0] + products[2]) + (products[1] + products[3]);
  return Log(sum) - product / sum;
}

}  // namespace isoloss::kernels
