#include "isoloss/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "isoloss/base/error.h"
#include "isoloss/kernels/elementary.h"

namespace isoloss::optim {
namespace {

/// Falls from 1 at progress 0 to 0 at progress 1.
double DecayAt(DecayShape shape, double progress) {
  switch (shape) {
    case DecayShape::kLinear:
      return 1.0 - progress;
    case DecayShape::kSqrt:
      return 1.0 - std::sqrt(progress);
    case DecayShape::kCosine:
      break;
  }
  double sine = 0;
  double cosine = 0;
  kernels::SinCos(std::numbers::pi * progress, &sine, &cosine);
  return 0.5 * (1.0 + cosine);
}

void CheckRatio(const char* name, double ratio) {
  if (!(ratio >= 0 && ratio <= 1)) {
    ThrowError(ErrorKind::kConfig,
               "schedule: {} is {}, but must lie in [0, 1]. Give it as a share "
               "of 1.",
               name, ratio);
  }
}

void Check(const ScheduleConfig& config) {
  if (!(config.base_lr > 0 && std::isfinite(config.base_lr))) {
    ThrowError(ErrorKind::kConfig,
               "schedule: the learning rate is {}, but must be positive and "
               "finite. Give a value such as 1e-3.",
               config.base_lr);
  }
  if (config.total_steps < 1 || config.warmup_steps < 0) {
    ThrowError(ErrorKind::kConfig,
               "schedule: {} steps with {} of warm-up, but at least 1 step and "
               "0 of warm-up are needed. Raise them.",
               config.total_steps, config.warmup_steps);
  }
  if (config.decay_ratio) CheckRatio("decay_ratio", *config.decay_ratio);
  CheckRatio("min_lr_factor", config.min_lr_factor);
}

}  // namespace

Schedule::Schedule(const ScheduleConfig& config) : config_(config) {
  Check(config);
  const int64_t total = config.total_steps;
  warmup_ = std::min(config.warmup_steps, total);
  decay_ = total - warmup_;
  if (config.decay_ratio) {
    // nearbyint rounds half to even if the mode is the default one.
    const double wanted =
        std::nearbyint(static_cast<double>(total) * *config.decay_ratio);
    decay_ = std::min(static_cast<int64_t>(wanted), decay_);
  }
  stable_ = total + 1 - warmup_ - decay_;
}

double Schedule::Factor(int64_t step) const {
  ISOLOSS_ASSERT(step >= 0 && step < config_.total_steps);
  if (step < warmup_) {
    return static_cast<double>(step + 1) / static_cast<double>(warmup_);
  }
  if (step < warmup_ + stable_) return 1.0;
  const double progress = static_cast<double>(step + 1 - warmup_ - stable_) /
                          static_cast<double>(decay_);
  const double floor = config_.min_lr_factor;
  return floor + (1.0 - floor) * DecayAt(config_.decay, progress);
}

}  // namespace isoloss::optim
