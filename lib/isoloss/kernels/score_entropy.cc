#include "isoloss/kernels/score_entropy.h"

#include <array>
#include <bit>
#include <cstdint>

#include "isoloss/kernels/elementary.h"
#include "isoloss/kernels/row_tasks.h"

namespace isoloss::kernels {
namespace {

constexpr size_t kLanes = 4;

/// Takes logarithms of floats by a table: m in [1, 2) is c (1 + r), c the
/// middle of one of 512 equal intervals, |r| <= 2^-10, ln(1 + r) = r - r^2 / 2
/// + r^3 / 3. The rest of the series and the FP64 operations lose less than
/// 3e-13.
class ScoreLog {
 public:
  ScoreLog() {
    for (size_t i = 0; i < kIntervals; ++i) {
      const double middle = 1.0 + (static_cast<double>(i) + 0.5) /
                                      static_cast<double>(kIntervals);
      intervals_[i] = {1.0 / middle, Log(middle)};
    }
  }

  /// Returns ln x of a normal number, and some finite number if x is zero,
  /// subnormal or not finite.
  double operator()(float x) const {
    constexpr double kLn2 = 0.693147180559945309417;
    constexpr uint32_t kMantissa = 0x007fffff;
    constexpr uint32_t kOne = 0x3f800000;
    const auto bits = std::bit_cast<uint32_t>(x);
    const Interval& interval =
        intervals_[(bits & kMantissa) >> (23 - kIntervalBits)];
    const auto mantissa =
        static_cast<double>(std::bit_cast<float>((bits & kMantissa) | kOne));
    const auto exponent = static_cast<int32_t>(bits >> 23 & 0xff) - 127;
    const double r = mantissa * interval.reciprocal - 1.0;
    return (static_cast<double>(exponent) * kLn2 + interval.log) +
           (r - r * r * (0.5 - r * (1.0 / 3.0)));
  }

 private:
  static constexpr int kIntervalBits = 9;
  static constexpr size_t kIntervals = size_t{1} << kIntervalBits;
  struct Interval {
    double reciprocal;
    double log;
  };
  std::array<Interval, kIntervals> intervals_;
};

double SumOfLanes(const std::array<double, kLanes>& lanes) {
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

}  // namespace

double ScoreEntropy(std::span<const float> scores) {
  static const ScoreLog log;
  std::array<double, kLanes> sums{};
  std::array<double, kLanes> products{};
  const size_t whole = scores.size() / kLanes * kLanes;
  const auto add = [&](size_t lane, float score) {
    const auto value = static_cast<double>(score);
    sums[lane] += value;
    products[lane] += value * log(score);
  };
  for (size_t e = 0; e < whole; e += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add(lane, scores[e + lane]);
  }
  for (size_t e = whole; e < scores.size(); ++e) add(e - whole, scores[e]);
  const double sum = SumOfLanes(sums);
  return Log(sum) - SumOfLanes(products) / sum;
}

void ScoreEntropies(MatrixView<const float> scores, std::span<double> entropies,
                    Executor& executor) {
  if (RanElsewhere(&ScoreEntropies, scores, entropies, executor)) return;
  RequireLength("ScoreEntropies", "entropies", entropies.size(), scores.rows());
  ForEachRow(scores.rows(), executor, [&](size_t t) {
    entropies[t] = ScoreEntropy({scores.Row(t), scores.cols()});
  });
}

}  // namespace isoloss::kernels
