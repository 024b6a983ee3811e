// Computes the learning rate of every step: warm-up, plateau, decay.
#pragma once

#include <cstdint>
#include <optional>

namespace isoloss::optim {

enum class DecayShape { kLinear, kSqrt, kCosine };

struct ScheduleConfig {
  double base_lr = 1e-3;
  int64_t total_steps = 0;   ///< N
  int64_t warmup_steps = 0;  ///< more than N counts as N
  /// This share of N decays, rounded half to even. If it is empty, all steps
  /// after the warm-up decay.
  std::optional<double> decay_ratio = std::nullopt;
  DecayShape decay = DecayShape::kLinear;
  double min_lr_factor = 0;  ///< floor of the decay, as a share of base_lr
};

/// With W = min(warmup_steps, N), D = N - W, or min(round(N * decay_ratio),
/// N - W), S = N + 1 - W - D, the factor of step n (from 0) is
///   n < W:      (n + 1) / W
///   n < W + S:  1
///   else:       min_lr_factor + (1 - min_lr_factor) * f(p),
///               p = (n + 1 - W - S) / D,
///               f = 1 - p, 1 - sqrt(p) or (1 + cos(pi p)) / 2.
/// The 1 in S is a virtual last step: the last real one is above the floor.
/// Exact    IEEE operations and kernels::SinCos; the same bits everywhere.
/// Source   torchtitan's build_lr_schedulers; docs/model.md, section 11.
class Schedule {
 public:
  /// Errors   ConfigError if base_lr is not positive and finite, a count is
  ///          negative, total_steps is 0, or a ratio is outside [0, 1].
  explicit Schedule(const ScheduleConfig& config);

  /// Returns the learning rate over base_lr. 0 <= step < total_steps.
  double Factor(int64_t step) const;
  double LearningRate(int64_t step) const {
    return config_.base_lr * Factor(step);
  }

 private:
  ScheduleConfig config_;
  int64_t warmup_;  // W
  int64_t decay_;   // D
  int64_t stable_;  // S
};

}  // namespace isoloss::optim
