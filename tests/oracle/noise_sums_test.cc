#include "isoloss/oracle/noise_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/oracle/estimate.h"

namespace isoloss::oracle::noise_sums_test {
namespace {

/// Standard errors by which the errors of 4096 sums of up to `bits` bits lean,
/// each multiplied by the scale of a tensor in E4M3 and rounded by `round`.
template <typename Round>
double LeanOfScaledSums(float largest, int bits, double lean,
                        const Round& round) {
  // As TransformerEngine has it.
  const auto scale = static_cast<double>(1.0f / (448.0f / largest));
  const CounterRng rng(7, StreamId("scaled sums"));
  NoiseSums parts[2];  // as two threads have them
  constexpr size_t kCount = 4096;
  for (size_t i = 0; i < kCount; ++i) {
    const auto sum =
        static_cast<double>(1 + rng.Below(i, (uint64_t{1} << bits) - 1));
    Estimate expected = Rounded32({.exact = sum * scale});
    expected.lean = lean * Ulp(expected.exact);
    parts[i / 64 % 2].Add(i / 64, i % 64, round(expected.exact), expected);
  }
  NoiseSums sums;
  for (const NoiseSums& part : parts) sums.Merge(part);
  runlog::OracleRow row;
  sums.Fill(row);
  return row.signed_error * std::sqrt(static_cast<double>(row.noisy_elements));
}

float Nearest(double x) { return static_cast<float>(x); }
float TowardZero(double x) {
  const auto nearest = static_cast<float>(x);
  return std::fabs(static_cast<double>(nearest)) > std::fabs(x)
             ? std::nextafter(nearest, 0.0f)
             : nearest;
}

// Normal values lie within 6 standard errors, but with probability 2e-9.
constexpr double kChance = 6;

/// 8 bits, as BF16 has them, and no power of two times 448.
std::vector<float> LargestMagnitudes() {
  std::vector<float> largest;
  for (int i = 128; i < 256; ++i) {
    if (i % 7 != 0) largest.push_back(static_cast<float>(i));
  }
  return largest;
}

TEST(NoiseSums, ExplainWhatASharedScaleLeansBy) {
  double worst = 0;
  for (const float largest : LargestMagnitudes()) {
    for (const int bits : {4, 6, 8, 11, 14, 17}) {
      worst = std::fmax(worst,
                        std::fabs(LeanOfScaledSums(largest, bits, 0, Nearest)));
      EXPECT_LT(
          std::fabs(LeanOfScaledSums(largest, bits, kScaledLean, Nearest)),
          kChance)
          << largest << ", " << bits << " bits";
    }
  }
  EXPECT_GT(worst, 2 * kChance) << "there was nothing to explain";
}

// The mean of what is cut off is half a last place, twice what is allowed for.
TEST(NoiseSums, FindScaledSumsThatAreCutOff) {
  for (const float largest : LargestMagnitudes()) {
    for (const int bits : {8, 11, 14, 17}) {
      EXPECT_LT(LeanOfScaledSums(largest, bits, kScaledLean, TowardZero),
                -kChance)
          << largest << ", " << bits << " bits";
    }
  }
}

}  // namespace
}  // namespace isoloss::oracle::noise_sums_test
