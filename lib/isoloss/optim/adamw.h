// Implements AdamW, which updates the tensors of a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/optim/tensor.h"

namespace isoloss::optim {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

/// Both members have one tensor's sums of squares, in the leaves of
/// kernels::SumOfSquaresLeaves: of the parameter before a step, and of what the
/// step adds to it (after - before, in FP32). Step sizes them and allocates
/// only the first time.
struct UpdateSquares {
  std::vector<double> parameter;
  std::vector<double> update;
};

/// All tensors are one group. Step t (from 1), with g = grad_scale * gradient:
///   p <- p (1 - lr * weight_decay)
///   m <- beta1 m + (1 - beta1) g
///   v <- beta2 v + (1 - beta2) g^2
///   p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
///
/// Elements are FP32 (kernels::AdamWUpdate). Scalars are computed in double and
/// rounded once; beta^t is the product of t factors, one per step.
/// Source   torch.optim.AdamW; docs/model.md, section 11.
class AdamW {
 public:
  /// Moments start at zero and lie in `memory`, as the tensors do. The tensors
  /// must outlive this object.
  /// Errors   ConfigError if a beta is outside [0, 1), or eps or weight_decay
  ///          is negative or not finite; ShapeError if a gradient's length is
  ///          not its parameter's.
  AdamW(const AdamWConfig& config, std::vector<Tensor> tensors,
        Memory& memory = kHostMemory);

  /// Updates every parameter in place. A non-empty `squares`, one per tensor,
  /// is filled while the values are in cache; it changes no bit of the update.
  void Step(double lr, double grad_scale, Executor& executor,
            std::span<UpdateSquares> squares = {});
  /// Updates like Step. Each gradient's memory then holds its parameter as it
  /// was before the step, since nobody reads the gradient any more.
  void StepKeepingParameters(double lr, double grad_scale, Executor& executor,
                             std::span<UpdateSquares> squares);

  std::span<const Tensor> tensors() const { return tensors_; }

  // The next step depends on these, besides parameters and gradients.

  /// Returns m or v, one row for each tensor. Callers may write them.
  std::span<Matrix<float>> first_moments() { return first_moments_; }
  std::span<Matrix<float>> second_moments() { return second_moments_; }
  /// Returns the number of steps so far.
  int64_t steps() const { return steps_; }
  /// Goes on as if `steps` had been made: the powers of the betas have the bits
  /// that those steps leave. The caller writes the moments.
  /// Errors   FormatError if `steps` is negative or above kMaxSteps.
  void Restore(int64_t steps);
  static constexpr int64_t kMaxSteps = int64_t{1} << 32;

 private:
  void Run(double lr, double grad_scale, Executor& executor,
           std::span<UpdateSquares> squares, bool keep_parameters);

  AdamWConfig config_;
  std::vector<Tensor> tensors_;
  std::vector<Matrix<float>> first_moments_;
  std::vector<Matrix<float>> second_moments_;
  int64_t steps_ = 0;       // t
  double beta1_power_ = 1;  // beta1^t
  double beta2_power_ = 1;
};

}  // namespace isoloss::optim
