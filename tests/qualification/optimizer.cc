// Errors of the update.
#include <cmath>
#include <memory>
#include <utility>

#include "isoloss/base/portable_math.h"
#include "isoloss/formats/bf16.h"
#include "qualification/groups.h"

namespace isoloss::qualification {
namespace {

using train::OptimizerInputs;

void ClippingLost(MutantContext& context) {
  context.hooks.before_optimizer = [](int64_t /*step*/,
                                      OptimizerInputs& inputs) {
    inputs.clip_coefficient = 1;
  };
}

/// Undoes what the coming step will take off.
void DecayLost(MutantContext& context) {
  const double rate = context.experiment.train.weight_decay;
  context.hooks.before_optimizer = [rate](int64_t /*step*/,
                                          OptimizerInputs& inputs) {
    const auto factor = static_cast<float>(1 / (1 - inputs.lr * rate));
    for (const optim::Tensor& tensor : inputs.adamw.tensors()) {
      for (float& value : tensor.parameter) value *= factor;
    }
  };
}

void BiasCorrectionLost(MutantContext& context) {
  const double beta1 = context.experiment.train.beta1;
  const double beta2 = context.experiment.train.beta2;
  context.hooks.before_optimizer = [=](int64_t step, OptimizerInputs& inputs) {
    const auto t = static_cast<double>(step);
    inputs.lr *=
        (1 - portable::Pow(beta1, t)) / std::sqrt(1 - portable::Pow(beta2, t));
  };
}

void RateOneStepLate(MutantContext& context) {
  const auto last = std::make_shared<double>(0.0);
  context.hooks.before_optimizer = [last](int64_t step,
                                          OptimizerInputs& inputs) {
    const double now = inputs.lr;
    if (step > 1) inputs.lr = *last;
    *last = now;
  };
}

void MomentsInBf16(MutantContext& context) {
  context.hooks.before_optimizer = [](int64_t /*step*/,
                                      OptimizerInputs& inputs) {
    for (Matrix<float>& moments : inputs.adamw.second_moments()) {
      for (size_t i = 0; i < moments.size(); ++i) {
        moments.data()[i] = formats::RoundToBf16(moments.data()[i]);
      }
    }
  };
}

/// As after a resume that restored weights only.
void MomentsForgotten(MutantContext& context) {
  constexpr int64_t kStep = 3;
  context.hooks.before_optimizer = [](int64_t step, OptimizerInputs& inputs) {
    if (step != kStep) return;
    for (Matrix<float>& moments : inputs.adamw.first_moments()) {
      moments.SetZero();
    }
  };
}

}  // namespace

std::vector<Mutant> OptimizerMutants() {
  const std::string group = "optimizer";
  return {
      {.name = "clipping_lost",
       .group = group,
       .what = "Gradients are not clipped",
       .link = "",
       .plant = ClippingLost},
      {.name = "decay_lost",
       .group = group,
       .what = "Weights do not decay",
       .link = "",
       .plant = DecayLost},
      {.name = "bias_correction_lost",
       .group = group,
       .what = "AdamW's moments are used without bias correction",
       .link = "",
       .plant = BiasCorrectionLost},
      {.name = "rate_one_step_late",
       .group = group,
       .what = "Every step has the learning rate of the step before",
       .link = "",
       .onset = 2,
       .plant = RateOneStepLate},
      {.name = "bf16_second_moments",
       .group = group,
       .what = "AdamW's second moments are kept in BF16",
       .link = "",
       .onset = 2,
       .plant = MomentsInBf16},
      {.name = "moments_forgotten",
       .group = group,
       .what = "At step 3 AdamW's first moments are 0, as after a resume that "
               "restored weights only",
       .link = "",
       .onset = 3,
       .plant = MomentsForgotten},
  };
}

}  // namespace isoloss::qualification
