// Errors of state that is kept from somewhere else or some time before.
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "qualification/engine.h"
#include "qualification/groups.h"

namespace isoloss::qualification {
namespace {

using model::GemmTask;
using precision::GemmRole;

uint8_t Raised(uint8_t scale) {
  return scale < 0xFE ? static_cast<uint8_t>(scale + 1) : scale;
}

/// One operand is quantised under twice the scale that its other copy got.
auto RaisedScale(GemmRole role) {
  return [role](MutantContext& context) {
    context.hooks.gemm_engine = MakeEngine(
        {.touches =
             [role](const GemmTask& task) {
               return IsQuantized(task) && task.role == role;
             },
         .scale =
             [](const Place& place, std::span<const float> block) {
               const uint8_t scale = formats::MxScale(block, place.spec());
               return place.side == Side::kRight ? Raised(scale) : scale;
             }});
  };
}

/// Scale bytes as the first training step found them.
class FrozenScales {
 public:
  void Replace(const Place& place, int64_t step, Matrix<uint8_t>& scales) {
    const std::lock_guard lock(mutex_);
    Matrix<uint8_t>& first = first_[{std::string(place.task.site),
                                     place.task.role, place.task.group}];
    if (step <= 1 || first.size() != scales.size()) {
      first.CopyFrom(scales);
    } else {
      scales.CopyFrom(first);
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<std::string, GemmRole, size_t>, Matrix<uint8_t>> first_;
};

void FreezeWeightScales(MutantContext& context) {
  const auto frozen = std::make_shared<FrozenScales>();
  context.hooks.gemm_engine = MakeEngine(
      {.touches =
           [](const GemmTask& task) {
             return IsQuantized(task) && task.role != GemmRole::kWgrad;
           },
       .scales =
           [frozen, clock = context.clock](
               const Place& place, std::span<const Block> /*blocks*/,
               const Matrix<float>& /*rows*/, Matrix<uint8_t>& scales) {
             if (place.IsWeight()) frozen->Replace(place, clock->step, scales);
           }});
}

/// Scales of an expert's weights are those of the largest magnitude over all
/// experts of the process, as if they were shards of one tensor.
void ReduceAmaxOverExperts(MutantContext& context) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches =
           [](const GemmTask& task) {
             return IsQuantized(task) && AtSite(task, "routed_experts") &&
                    task.role == GemmRole::kFprop;
           },
       .scales =
           [](const Place& place, std::span<const Block> blocks,
              const Matrix<float>& /*rows*/, Matrix<uint8_t>& scales) {
             if (!place.IsWeight()) return;
             for (const GemmTask& task : place.batch) {
               if (task.site != place.task.site || task.role != place.task.role)
                 continue;
               const Matrix<float> others = RowsOf(task.problem.b);
               for (size_t i = 0; i < scales.rows(); ++i) {
                 for (size_t n = 0; n < blocks.size(); ++n) {
                   scales(i, n) = std::max(
                       scales(i, n),
                       formats::MxScale({others.Row(i) + blocks[n].begin,
                                         blocks[n].end - blocks[n].begin},
                                        place.spec()));
                 }
               }
             }
           }});
}

/// Of a block's two halves only the second one counts.
void KeepLastAmaxOnly(MutantContext& context) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches =
           [](const GemmTask& task) {
             return IsQuantized(task) && task.role == GemmRole::kWgrad;
           },
       .scale =
           [](const Place& place, std::span<const float> block) {
             return formats::MxScale(block.subspan(block.size() / 2),
                                     place.spec());
           }});
}

/// Every tenth update of one weight is overwritten by what was there before.
void RestoreOldWeights(MutantContext& context) {
  constexpr int64_t kEvery = 10;
  const auto old = std::make_shared<Matrix<float>>();
  const std::string name = LastAttentionOutput(context) + ".weight";
  context.hooks.after_update = [old, name](int64_t step,
                                           model::ParameterSet& weights,
                                           MatrixView<float> /*expert_bias*/) {
    Matrix<float>& weight = weights.ByName(name).values;
    if (step % kEvery == 2 && old->size() > 0) {
      weight.CopyFrom(*old);
    } else if (step % kEvery == 1) {
      old->CopyFrom(weight);
    }
  };
}

/// A gradient takes the place of a weight whose buffer it shares.
void GradientOverwritesWeight(MutantContext& context) {
  constexpr int64_t kStep = 3;
  context.hooks.after_update = [](int64_t step, model::ParameterSet& weights,
                                  MatrixView<float> /*expert_bias*/) {
    if (step != kStep) return;
    Matrix<float>& head = weights.ByName("norm.weight").values;
    head.data()[0] = std::numeric_limits<float>::quiet_NaN();
  };
}

}  // namespace

std::vector<Mutant> StaleStateMutants() {
  const std::string group = "stale_state";
  return {
      {.name = "cached_weight_scale",
       .catalogue = 26,
       .group = group,
       .what = "Weights of dgrad have twice the scale of those of fprop",
       .link = "https://github.com/NVIDIA/TransformerEngine/issues/1047",
       .note = "only what falls among the subnormals is rounded otherwise",
       .quantized_products = true,
       .plant = RaisedScale(GemmRole::kDgrad)},
      {.name = "weight_scale_frozen",
       .catalogue = 28,
       .group = group,
       .what = "Scales of weights are those of the first step for ever",
       .link = "https://github.com/NVIDIA/TransformerEngine/pull/2044",
       .onset = 2,
       .quantized_products = true,
       .plant = FreezeWeightScales},
      {.name = "recompute_scale",
       .catalogue = 29,
       .group = group,
       .what = "Activations of wgrad are quantised under twice their scale, "
               "as recomputation found it",
       .link = "https://github.com/NVIDIA/TransformerEngine/pull/1723",
       .note = "only what falls among the subnormals is rounded otherwise",
       .quantized_products = true,
       .plant = RaisedScale(GemmRole::kWgrad)},
      {.name = "amax_over_wrong_group",
       .catalogue = 30,
       .group = group,
       .what = "Scales of an expert's weights come from the largest magnitude "
               "of all experts",
       .link = "https://github.com/NVIDIA/Megatron-LM/pull/442",
       .quantized_products = true,
       .plant = ReduceAmaxOverExperts},
      {.name = "update_overwritten",
       .catalogue = 31,
       .group = group,
       .what = "Every tenth update of one weight is lost to its old value",
       .link = "https://github.com/AI-Hypercomputer/maxtext/pull/5021",
       .onset = 2,
       .plant = RestoreOldWeights},
      {.name = "last_amax_only",
       .catalogue = 32,
       .group = group,
       .what = "Scales of wgrad know the second half of each block's tokens "
               "only",
       .link = "https://github.com/marin-community/marin/pull/8360",
       .quantized_products = true,
       .plant = KeepLastAmaxOnly},
      {.name = "gather_reuses_gradient_buffer",
       .catalogue = 33,
       .group = group,
       .what = "After step 3 a weight is NaN, because its buffer was reused",
       .link = "https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/1255",
       .onset = 3,
       .plant = GradientOverwritesWeight},
  };
}

}  // namespace isoloss::qualification
