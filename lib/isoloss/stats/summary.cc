#include "isoloss/stats/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace isoloss::stats {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Keeps Neumaier's running sum.
class CompensatedSum {
 public:
  void Add(double value) {
    const double next = sum_ + value;
    lost_ += std::fabs(sum_) >= std::fabs(value) ? (sum_ - next) + value
                                                 : (value - next) + sum_;
    sum_ = next;
  }
  double Value() const { return sum_ + lost_; }

 private:
  double sum_ = 0;
  double lost_ = 0;
};

}  // namespace

double Sum(std::span<const double> values) {
  CompensatedSum sum;
  for (const double value : values) sum.Add(value);
  return sum.Value();
}

double Mean(std::span<const double> values) {
  if (values.empty()) return kNan;
  return Sum(values) / static_cast<double>(values.size());
}

Summary Summarize(std::span<const double> values) {
  Summary summary;
  summary.count = static_cast<int64_t>(values.size());
  summary.mean = Mean(values);
  if (values.size() < 2) {
    summary.sd = kNan;
    return summary;
  }
  CompensatedSum squares;
  CompensatedSum deviations;
  for (const double value : values) {
    const double deviation = value - summary.mean;
    squares.Add(deviation * deviation);
    deviations.Add(deviation);
  }
  const double n = static_cast<double>(values.size());
  const double sum_of_squares =
      squares.Value() - deviations.Value() * deviations.Value() / n;
  // Rounding may leave a tiny negative number if all values are equal.
  summary.sd = sum_of_squares < 0 ? 0 : std::sqrt(sum_of_squares / (n - 1));
  return summary;
}

double Median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

}  // namespace isoloss::stats
