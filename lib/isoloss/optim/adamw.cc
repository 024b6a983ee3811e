#include "isoloss/optim/adamw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::optim {
namespace {

void CheckBeta(const char* name, double beta) {
  if (!(beta >= 0 && beta < 1)) {
    ThrowError(ErrorKind::kConfig,
               "AdamW: {} is {}, but must lie in [0, 1). The usual values are "
               "0.9 and 0.95.",
               name, beta);
  }
}

void CheckNotNegative(const char* name, double value) {
  if (!(value >= 0 && std::isfinite(value))) {
    ThrowError(ErrorKind::kConfig,
               "AdamW: {} is {}, but must be finite and not negative. Choose "
               "another value.",
               name, value);
  }
}

std::span<float> All(Matrix<float>& matrix) {
  return {matrix.data(), matrix.size()};
}

/// An Update is one tensor with its moments and the factors of the step.
struct Update {
  std::span<float> parameter;
  std::span<float> first_moment;
  std::span<float> second_moment;
  std::span<float> gradient;
  const kernels::AdamWScalars& scalars;
  bool keep_parameter;  ///< where the gradient was

  /// Returns elements [first, first + count).
  Update Part(size_t first, size_t count) const {
    return {parameter.subspan(first, count),
            first_moment.subspan(first, count),
            second_moment.subspan(first, count),
            gradient.subspan(first, count),
            scalars,
            keep_parameter};
  }
  void Run(ThreadTeam& team) const {
    kernels::AdamWUpdate(parameter, first_moment, second_moment, gradient,
                         scalars, team);
  }
};

/// Updates one leaf and computes its sums of squares.
void RunLeaf(const Update& leaf, double& parameter_squares,
             double& update_squares) {
  static ThreadTeam alone(1);  // runs loops in the calling thread
  std::array<float, kernels::kSquaresLeaf> change;
  const size_t size = leaf.parameter.size();
  kernels::SumOfSquaresLeaves(leaf.parameter, {&parameter_squares, 1}, alone);
  std::copy(leaf.parameter.begin(), leaf.parameter.end(), change.begin());
  leaf.Run(alone);
  if (leaf.keep_parameter) {
    std::copy_n(change.begin(), size, leaf.gradient.begin());
  }
  for (size_t i = 0; i < size; ++i) change[i] = leaf.parameter[i] - change[i];
  kernels::SumOfSquaresLeaves(std::span(change).first(size),
                              {&update_squares, 1}, alone);
}

void RunWithSquares(const Update& update, UpdateSquares& squares,
                    ThreadTeam& team) {
  constexpr size_t kLeaf = kernels::kSquaresLeaf;
  const size_t size = update.parameter.size();
  squares.parameter.resize((size + kLeaf - 1) / kLeaf);
  squares.update.resize(squares.parameter.size());
  kernels::ForRowRuns(
      size, 1, kLeaf, team, [&](size_t run_first, size_t run_count) {
        for (size_t i = 0; i < run_count; i += kLeaf) {
          const size_t first = run_first + i;
          RunLeaf(update.Part(first, std::min(kLeaf, run_count - i)),
                  squares.parameter[first / kLeaf],
                  squares.update[first / kLeaf]);
        }
      });
}

}  // namespace

AdamW::AdamW(const AdamWConfig& config, std::vector<Tensor> tensors)
    : config_(config), tensors_(std::move(tensors)) {
  CheckBeta("beta1", config.beta1);
  CheckBeta("beta2", config.beta2);
  CheckNotNegative("eps", config.eps);
  CheckNotNegative("weight_decay", config.weight_decay);
  for (const Tensor& tensor : tensors_) {
    const size_t size = tensor.parameter.size();
    if (tensor.gradient.size() != size) {
      ThrowError(ErrorKind::kShape,
                 "AdamW: a gradient has {} values, but its parameter has {}. "
                 "Pass the gradient of the same tensor.",
                 tensor.gradient.size(), size);
    }
    first_moments_.emplace_back(1, size);
    second_moments_.emplace_back(1, size);
  }
}

void AdamW::Restore(int64_t steps) {
  if (steps < 0 || steps > kMaxSteps) {
    ThrowError(ErrorKind::kFormat,
               "AdamW: {} steps are to have been made, but they must lie in "
               "[0, {}]. Use another checkpoint.",
               steps, kMaxSteps);
  }
  steps_ = steps;
  beta1_power_ = 1;
  beta2_power_ = 1;
  // pow would give another last bit. Powers reach a fixed point in the end.
  for (int64_t t = 0; t < steps; ++t) {
    const double next1 = beta1_power_ * config_.beta1;
    const double next2 = beta2_power_ * config_.beta2;
    if (next1 == beta1_power_ && next2 == beta2_power_) break;
    beta1_power_ = next1;
    beta2_power_ = next2;
  }
}

void AdamW::Step(double lr, double grad_scale, ThreadTeam& team,
                 std::span<UpdateSquares> squares) {
  Run(lr, grad_scale, team, squares, /*keep_parameters=*/false);
}

void AdamW::StepKeepingParameters(double lr, double grad_scale,
                                  ThreadTeam& team,
                                  std::span<UpdateSquares> squares) {
  ISOLOSS_ASSERT(!squares.empty() || tensors_.empty());
  Run(lr, grad_scale, team, squares, /*keep_parameters=*/true);
}

void AdamW::Run(double lr, double grad_scale, ThreadTeam& team,
                std::span<UpdateSquares> squares, bool keep_parameters) {
  if (!squares.empty() && squares.size() != tensors_.size()) {
    ThrowError(ErrorKind::kShape,
               "AdamW: {} sums of squares are wanted, but there are {} "
               "tensors. Pass one for each, or none.",
               squares.size(), tensors_.size());
  }
  ++steps_;
  beta1_power_ *= config_.beta1;
  beta2_power_ *= config_.beta2;
  const kernels::AdamWScalars scalars = {
      .decay = static_cast<float>(1.0 - lr * config_.weight_decay),
      .beta1 = static_cast<float>(config_.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - config_.beta1),
      .beta2 = static_cast<float>(config_.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - config_.beta2),
      .step_size = static_cast<float>(lr / (1.0 - beta1_power_)),
      .bias2_sqrt = static_cast<float>(std::sqrt(1.0 - beta2_power_)),
      .eps = static_cast<float>(config_.eps),
      .grad_scale = static_cast<float>(grad_scale),
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Update update = {tensors_[i].parameter,
                           All(first_moments_[i]),
                           All(second_moments_[i]),
                           tensors_[i].gradient,
                           scalars,
                           keep_parameters};
    if (squares.empty()) {
      update.Run(team);
    } else {
      RunWithSquares(update, squares[i], team);
    }
  }
}

}  // namespace isoloss::optim
