#include "isoloss/stats/sequential.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "isoloss/base/error.h"

namespace isoloss::stats {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void Require(bool holds, const char* option, double value, const char* rule) {
  if (holds) return;
  ThrowError(ErrorKind::kConfig,
             "sequential monitor: {} is {}, but it must {}.", option, value,
             rule);
}

const SequentialOptions& Checked(const SequentialOptions& options) {
  const auto positive = [](double value) {
    return value > 0 && std::isfinite(value);
  };
  Require(positive(options.margin), "margin", options.margin,
          "be positive and finite");
  Require(options.alpha > 0 && options.alpha < 0.5, "alpha", options.alpha,
          "lie in (0, 0.5)");
  Require(std::isfinite(options.null_mean), "null_mean", options.null_mean,
          "be finite");
  Require(options.tuned_for >= 1 && std::isfinite(options.tuned_for),
          "tuned_for", options.tuned_for, "be at least 1");
  Require(options.first_look >= 2, "first_look",
          static_cast<double>(options.first_look), "be at least 2");
  if (options.sd.has_value()) {
    Require(positive(*options.sd), "sd", *options.sd, "be positive and finite");
  }
  if (options.cusum_limit.has_value()) {
    Require(positive(*options.cusum_limit), "cusum_limit", *options.cusum_limit,
            "be positive and finite");
    Require(options.sd.has_value(), "cusum_limit", *options.cusum_limit,
            "come with the sd that standardises the batch means");
  }
  return options;
}

/// log(Phi(y) exp(y^2 / 2)), which neither overflows nor loses its digits.
double LogScaledNormalCdf(double y) {
  if (y > -20) {
    return std::log(std::erfc(-y / std::numbers::sqrt2) / 2) + y * y / 2;
  }
  // Mills' ratio: the first term left out is 15 / y^6 < 3e-7 relative.
  const double inverse = 1 / (y * y);
  return std::log((1 - inverse * (1 - 3 * inverse)) /
                  (-y * std::sqrt(2 * std::numbers::pi)));
}

}  // namespace

void Cusum::Add(double z) {
  if (std::isnan(z)) {
    upper_ = kInfinity;
    return;
  }
  // An infinite sum stays infinite: adding -infinity would make it NaN.
  if (std::isinf(value())) return;
  upper_ = std::max(0.0, upper_ + z - slack_);
  if (!one_sided_) lower_ = std::max(0.0, lower_ - z - slack_);
}

SequentialMonitor::SequentialMonitor(const SequentialOptions& options)
    : options_(Checked(options)),
      rho_squared_((-2 * std::log(options.alpha) +
                    std::log1p(-2 * std::log(options.alpha))) /
                   options.tuned_for),
      cusum_(options.one_sided) {}

const SequentialState& SequentialMonitor::Add(double batch_mean) {
  ++state_.batches;
  if (!std::isfinite(batch_mean)) {
    if (state_.alarm == Alarm::kNone) state_.alarm = Alarm::kNotFinite;
    mean_ = std::numeric_limits<double>::quiet_NaN();
    return state_;
  }
  // After a value that was not finite there is no mean to go on with.
  if (std::isnan(mean_)) return state_;
  const double deviation = batch_mean - mean_;
  mean_ += deviation / static_cast<double>(state_.batches);
  squares_ += deviation * (batch_mean - mean_);
  if (options_.sd.has_value()) {
    cusum_.Add((batch_mean - options_.null_mean) / *options_.sd);
    state_.cusum = cusum_.value();
    state_.log_e = LogE();
  }
  UpdateConfidenceSequence();
  if (state_.alarm == Alarm::kNone) state_.alarm = Judge();
  return state_;
}

double SequentialMonitor::LogE() const {
  const double n = static_cast<double>(state_.batches);
  const double width = std::sqrt(n + 1 / rho_squared_) * *options_.sd;
  const double common = std::numbers::ln2 - std::log1p(n * rho_squared_) / 2;
  const double above =
      common + LogScaledNormalCdf(n * (mean_ - options_.margin) / width);
  if (options_.one_sided) return above;
  const double below =
      common + LogScaledNormalCdf(n * (-mean_ - options_.margin) / width);
  const double larger = std::max(above, below);
  return larger + std::log1p(std::exp(std::min(above, below) - larger)) -
         std::numbers::ln2;
}

void SequentialMonitor::UpdateConfidenceSequence() {
  if (state_.batches < options_.first_look) return;
  const double n = static_cast<double>(state_.batches);
  const double sd = std::sqrt(squares_ / (n - 1));
  const double inflated = n * rho_squared_ + 1;
  const double half_width =
      sd * std::sqrt(2 * inflated / (n * n * rho_squared_) *
                     (std::log(inflated) / 2 - std::log(options_.alpha)));
  state_.lower = mean_ - half_width;
  state_.upper = mean_ + half_width;
}

Alarm SequentialMonitor::Judge() const {
  if (state_.log_e.has_value()) {
    if (*state_.log_e >= -std::log(options_.alpha)) return Alarm::kEProcess;
  } else {
    const bool below = !options_.one_sided && state_.upper < -options_.margin;
    if (below || state_.lower > options_.margin) {
      return Alarm::kConfidenceSequence;
    }
  }
  if (options_.cusum_limit.has_value() &&
      state_.cusum > *options_.cusum_limit) {
    return Alarm::kCusum;
  }
  return Alarm::kNone;
}

}  // namespace isoloss::stats
