#include "isoloss/stats/max_t.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"
#include "isoloss/stats/tolerance_limit.h"

namespace isoloss::stats {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void CheckFloors(std::span<const double> scale_floor) {
  for (size_t i = 0; i < scale_floor.size(); ++i) {
    if (!(scale_floor[i] > 0 && std::isfinite(scale_floor[i]))) {
      ThrowError(ErrorKind::kConfig,
                 "MaxT: the scale floor of statistic {} is {}, but it must be "
                 "positive and finite.",
                 i, scale_floor[i]);
    }
  }
}

/// Returns the number of runs.
size_t CheckNull(std::span<const double> null, size_t statistics) {
  if (statistics == 0 || null.size() % statistics != 0) {
    ThrowError(statistics == 0 ? ErrorKind::kConfig : ErrorKind::kShape,
               "MaxT: {} null values of {} statistics, but there must be a "
               "statistic and each run must have a value of each.",
               null.size(), statistics);
  }
  const size_t runs = null.size() / statistics;
  if (runs < 3) {
    ThrowError(ErrorKind::kConfig,
               "MaxT: {} null runs, but leaving one out must leave a spread. "
               "Pass at least 3.",
               runs);
  }
  for (size_t i = 0; i < null.size(); ++i) {
    if (!std::isfinite(null[i])) {
      ThrowError(ErrorKind::kConfig,
                 "MaxT: statistic {} of null run {} is {}, but null values "
                 "must be finite.",
                 i % statistics, i / statistics, null[i]);
    }
  }
  return runs;
}

/// Computes |z| of each value, standardised by all the rest; needs at least 3
/// values.
class LeaveOneOut {
 public:
  LeaveOneOut(std::span<const double> values, double scale_floor)
      : values_(values), scale_floor_(scale_floor), mean_(Mean(values)) {
    for (const double value : values) {
      squares_ += (value - mean_) * (value - mean_);
    }
  }

  double AbsoluteZ(size_t index) const {
    const double n = static_cast<double>(values_.size());
    // The mean and the sum of squares of the rest follow from those of all.
    double deviation = (values_[index] - mean_) * n / (n - 1);
    double rest = squares_ - (values_[index] - mean_) * deviation;
    double scale = std::sqrt(std::max(0.0, rest) / (n - 2));
    // A value that holds nearly all of the spread cancels, and so do
    // infinities.
    if (!(rest >= 1e-6 * squares_)) {
      const Summary others = SummarizeOthers(index);
      deviation = values_[index] - others.mean;
      scale = others.sd;
    }
    return std::fabs(deviation) / std::max(scale, scale_floor_);
  }

 private:
  Summary SummarizeOthers(size_t index) const {
    std::vector<double> others(values_.begin(), values_.end());
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(index));
    return Summarize(others);
  }

  std::span<const double> values_;
  double scale_floor_;
  double mean_;
  double squares_ = 0;
};

}  // namespace

MaxT::MaxT(std::span<const double> null, std::span<const double> scale_floor,
           const MaxTOptions& options)
    : runs_(CheckNull(null, scale_floor.size())),
      scale_floor_(scale_floor.begin(), scale_floor.end()) {
  CheckFloors(scale_floor);
  null_.resize(null.size());
  null_maxima_.assign(runs_, 0);
  for (size_t j = 0; j < Statistics(); ++j) {
    const std::span<double> column(null_.data() + j * runs_, runs_);
    for (size_t i = 0; i < runs_; ++i) column[i] = null[i * Statistics() + j];
    const Summary summary = Summarize(column);
    location_.push_back(summary.mean);
    scale_.push_back(std::max(summary.sd, scale_floor_[j]));
    const LeaveOneOut others(column, scale_floor_[j]);
    for (size_t i = 0; i < runs_; ++i) {
      null_maxima_[i] = std::max(null_maxima_[i], others.AbsoluteZ(i));
    }
  }
  SetThreshold(options);
}

void MaxT::SetThreshold(const MaxTOptions& options) {
  const double k = ToleranceFactor(static_cast<int64_t>(runs_),
                                   options.coverage, options.confidence);
  double smallest = kInfinity;
  for (const double maximum : null_maxima_) {
    if (maximum > 0) smallest = std::min(smallest, maximum);
  }
  if (std::isinf(smallest)) return;
  std::vector<double> logs;
  for (const double maximum : null_maxima_) {
    logs.push_back(std::log(std::max(maximum, smallest)));
  }
  const Summary summary = Summarize(logs);
  threshold_ = std::max(1.0, std::exp(summary.mean + k * summary.sd));
  if (runs_ >= 8) normality_ = AndersonDarling(logs);
}

MaxTResult MaxT::Test(std::span<const double> observed) const {
  if (observed.size() != Statistics()) {
    ThrowError(ErrorKind::kShape,
               "MaxT::Test: {} observed statistics, but the null runs have {}.",
               observed.size(), Statistics());
  }
  MaxTResult result;
  const double n = static_cast<double>(runs_);
  for (size_t j = 0; j < observed.size(); ++j) {
    const double z = std::isfinite(observed[j])
                         ? (observed[j] - location_[j]) / scale_[j]
                         : kInfinity;
    const double size = std::fabs(z);
    if (size > result.largest) {
      result.largest = size;
      result.worst = j;
    }
    if (size > threshold_) result.exceeding.push_back(j);
    result.z.push_back(z);
    result.p_values.push_back(
        2 * StudentTUpperTail(size / std::sqrt(1 + 1 / n), n - 1));
  }
  result.p_value = PooledPValue(observed, result.largest);
  return result;
}

double MaxT::PooledPValue(std::span<const double> observed,
                          double largest) const {
  std::vector<double> maxima(runs_, 0);
  // An infinite maximum is above all of them.
  if (std::isinf(largest)) return OrderStatisticPValue(maxima, largest);
  std::vector<double> pooled(runs_ + 1);
  for (size_t j = 0; j < observed.size(); ++j) {
    std::copy_n(null_.begin() + static_cast<std::ptrdiff_t>(j * runs_), runs_,
                pooled.begin());
    pooled.back() = observed[j];
    const LeaveOneOut others(pooled, scale_floor_[j]);
    for (size_t i = 0; i < runs_; ++i) {
      maxima[i] = std::max(maxima[i], others.AbsoluteZ(i));
    }
  }
  return OrderStatisticPValue(maxima, largest);
}

}  // namespace isoloss::stats
