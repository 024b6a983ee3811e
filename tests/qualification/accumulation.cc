// Errors in sums: of products, of gradients, of updates.
#include <algorithm>
#include <bit>
#include <utility>

#include "isoloss/formats/bf16.h"
#include "qualification/engine.h"
#include "qualification/groups.h"

namespace isoloss::qualification {
namespace {

using model::GemmTask;
using precision::GemmRole;

void RoundToBf16(Matrix<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = formats::RoundToBf16(values.data()[i]);
  }
}

/// Of the 23 mantissa bits an accumulator keeps 13, and drops the rest.
void LimitedAccumulator(MutantContext& context) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches = IsQuantized, .product = [](const Product& product) {
         SumSegments(product,
                     [](MatrixView<const float> a, MatrixView<const float> b,
                        MatrixView<float> sums) {
                       constexpr uint32_t kKept = ~0u << 10;
                       FoldProducts<float>(
                           a, b, {},
                           [](float acc, float term) {
                             return std::bit_cast<float>(
                                 std::bit_cast<uint32_t>(acc + term) & kKept);
                           },
                           sums);
                     });
       }});
}

/// Two halves of the contraction axis, added as BF16.
void SplitKInBf16(MutantContext& context) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches = IsQuantized, .product = [](const Product& product) {
         SumSegments(product, [](MatrixView<const float> a,
                                 MatrixView<const float> b,
                                 MatrixView<float> sums) {
           const auto add = [](float acc, float term) { return acc + term; };
           const size_t half = (a.cols() + 1) / 2;
           const size_t rest = a.cols() - half;
           Matrix<float> second(sums.rows(), sums.cols());
           FoldProducts<float>(a.Cols(0, half), b.Cols(0, half), {}, add, sums);
           FoldProducts<float>(a.Cols(half, rest), b.Cols(half, rest), {}, add,
                               second.view());
           for (size_t i = 0; i < sums.rows(); ++i) {
             for (size_t j = 0; j < sums.cols(); ++j) {
               sums(i, j) =
                   formats::RoundToBf16(formats::RoundToBf16(sums(i, j)) +
                                        formats::RoundToBf16(second(i, j)));
             }
           }
         });
       }});
}

/// What the second half of the tokens adds to weight gradients of attention is
/// not added.
void FirstShareOnly(MutantContext& context) {
  context.hooks.gemm_engine =
      MakeEngine({.touches =
                      [](const GemmTask& task) {
                        return IsQuantized(task) && AtSite(task, "attention") &&
                               task.role == GemmRole::kWgrad;
                      },
                  .after_quantising =
                      [](const Place& place, Matrix<float>& rows) {
                        if (place.side == Side::kRight) return;
                        for (size_t i = 0; i < rows.rows(); ++i) {
                          std::fill(rows.Row(i) + rows.cols() / 2,
                                    rows.Row(i) + rows.cols(), 0.0f);
                        }
                      }});
}

/// Each sequence's share of the gradient is weighted by the batch's mean length
/// over its own.
void MeanOfMeans(MutantContext& context) {
  const auto length =
      static_cast<double>(context.experiment.data.sequence_length);
  const double counted =
      length *
      static_cast<double>(context.experiment.train.sequences_per_batch);
  const double mean_length =
      counted /
      static_cast<double>(context.experiment.train.sequences_per_batch);
  const auto factor = static_cast<float>(mean_length / length);
  context.hooks.after_backward = [factor](int64_t /*step*/,
                                          model::ParameterSet& gradients) {
    for (model::Parameter& gradient : gradients.parameters()) {
      Matrix<float>& values = gradient.values;
      for (size_t i = 0; i < values.size(); ++i) values.data()[i] *= factor;
    }
  };
}

void ExpertBiasInBf16(MutantContext& context) {
  context.hooks.after_update = [](int64_t /*step*/,
                                  model::ParameterSet& /*weights*/,
                                  MatrixView<float> expert_bias) {
    for (size_t i = 0; i < expert_bias.rows(); ++i) {
      for (size_t e = 0; e < expert_bias.cols(); ++e) {
        expert_bias(i, e) = formats::RoundToBf16(expert_bias(i, e));
      }
    }
  };
}

void MasterWeightsInBf16(MutantContext& context) {
  context.hooks.after_update = [](int64_t /*step*/,
                                  model::ParameterSet& weights,
                                  MatrixView<float> /*expert_bias*/) {
    for (model::Parameter& weight : weights.parameters()) {
      RoundToBf16(weight.values);
    }
  };
}

void GradientsInBf16(MutantContext& context) {
  context.hooks.after_backward = [](int64_t /*step*/,
                                    model::ParameterSet& gradients) {
    for (model::Parameter& gradient : gradients.parameters()) {
      RoundToBf16(gradient.values);
    }
  };
}

}  // namespace

std::vector<Mutant> AccumulationMutants() {
  const std::string group = "accumulation";
  return {
      {.name = "limited_accumulator",
       .catalogue = 34,
       .group = group,
       .what = "Accumulators keep 13 mantissa bits and drop the rest",
       .link = "https://github.com/deepseek-ai/DeepSeek-V3/issues/197",
       .quantized_products = true,
       .plant = LimitedAccumulator},
      {.name = "split_k_bf16",
       .catalogue = 35,
       .group = group,
       .what = "Two halves of the contraction axis are added in BF16",
       .link = "https://github.com/flagos-ai/FlagGems/pull/5876",
       .quantized_products = true,
       .plant = SplitKInBf16},
      {.name = "wgrad_first_share_only",
       .catalogue = 36,
       .group = group,
       .what = "Weight gradients of attention know the first half of the batch "
               "only",
       .link = "https://github.com/AMD-AGI/Primus/pull/1046",
       .quantized_products = true,
       .plant = FirstShareOnly},
      {.name = "mean_of_means",
       .catalogue = 37,
       .group = group,
       .kind = Class::kEquivalent,
       .what = "The loss is the mean of sequences' means",
       .link = "https://github.com/huggingface/transformers/pull/34191",
       .note = "sequences of these batches are equally long and all their "
               "labels count, so every weight is 1",
       .plant = MeanOfMeans},
      {.name = "bf16_expert_bias",
       .catalogue = 38,
       .group = group,
       .what = "Selection biases of experts are kept in BF16",
       .link = "https://github.com/NVIDIA-NeMo/Automodel/pull/3387",
       .plant = ExpertBiasInBf16},
      {.name = "bf16_master_weights",
       .catalogue = 39,
       .group = group,
       .what = "Master weights are rounded to BF16 after each update",
       .link = "",
       .plant = MasterWeightsInBf16},
      {.name = "bf16_gradients",
       .group = group,
       .kind = Class::kSpecificationChange,
       .what = "Gradients are rounded to BF16 before they are added up",
       .link = "",
       .note = "what reduces gradients in BF16 does",
       .plant = GradientsInBf16},
  };
}

}  // namespace isoloss::qualification
