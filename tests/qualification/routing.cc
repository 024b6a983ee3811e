// Errors of routers and of what trains them.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/model/router.h"
#include "qualification/exchange_proxy.h"
#include "qualification/groups.h"

namespace isoloss::qualification {
namespace {

using expert_parallel::Exchange;
using model::ModelConfig;
using model::RoutedToken;

uint64_t IndexOf(int64_t step, const RoutedToken& decided) {
  return (static_cast<uint64_t>(step) << 8 | decided.layer) << 32 |
         decided.token;
}

/// Decides once more by other scores; weights come from the true ones.
void ChooseBy(const ModelConfig& config, std::span<const float> scores,
              std::span<const float> bias, const RoutedToken& decided) {
  kernels::scalar::SelectExperts(config.router_rule(), scores, bias,
                                 decided.expert_ids);
  kernels::scalar::CombineWeights(config.router_rule(), decided.scores,
                                  decided.expert_ids, decided.weights);
}

void ScoresInBf16(MutantContext& context) {
  context.hooks.edit_routing =
      [config = context.experiment.model](const RoutedToken& decided) {
        std::vector<float> biased(decided.scores.size());
        for (size_t e = 0; e < biased.size(); ++e) {
          biased[e] = formats::RoundToBf16(decided.scores[e] + decided.bias[e]);
        }
        const std::vector<float> none(biased.size(), 0.0f);
        ChooseBy(config, biased, none, decided);
      };
}

/// A term that shall only break ties is larger than differences between scores.
void TieBreakEpsilon(MutantContext& context) {
  constexpr float kEpsilon = 1e-4f;
  context.hooks.edit_routing =
      [config = context.experiment.model](const RoutedToken& decided) {
        std::vector<float> bias(decided.bias.begin(), decided.bias.end());
        for (size_t e = 0; e < bias.size(); ++e) {
          bias[e] -= kEpsilon * static_cast<float>(e);
        }
        ChooseBy(config, decided.scores, bias, decided);
      };
}

/// Weights are normalised over all experts before the choice, not over those
/// that were chosen.
void NormaliseBeforeChoice(MutantContext& context) {
  context.hooks.edit_routing =
      [config = context.experiment.model](const RoutedToken& decided) {
        const float sum =
            std::accumulate(decided.scores.begin(), decided.scores.end(), 0.0f);
        for (size_t k = 0; k < decided.weights.size(); ++k) {
          decided.weights[k] =
              decided.scores[static_cast<size_t>(decided.expert_ids[k])] / sum *
              static_cast<float>(config.route_scale);
        }
      };
}

void SwapGateWeights(MutantContext& context) {
  context.hooks.edit_routing = [](const RoutedToken& decided) {
    std::reverse(decided.weights.begin(), decided.weights.end());
  };
}

/// The best expert that was not chosen, by biased score.
int32_t NextBest(const RoutedToken& decided) {
  int32_t best = -1;
  float best_score = 0;
  for (size_t e = 0; e < decided.scores.size(); ++e) {
    const auto id = static_cast<int32_t>(e);
    const float score = decided.scores[e] + decided.bias[e];
    const bool chosen =
        std::find(decided.expert_ids.begin(), decided.expert_ids.end(), id) !=
        decided.expert_ids.end();
    if (!chosen && (best < 0 || score > best_score)) {
      best = id;
      best_score = score;
    }
  }
  return best;
}

void ThirdExpert(MutantContext& context) {
  const CounterRng rng(context.seed, StreamId("mutants/third_expert"));
  context.hooks.edit_routing = [config = context.experiment.model, rng,
                                clock =
                                    context.clock](const RoutedToken& decided) {
    if (rng.Below(IndexOf(clock->step, decided), 100) != 0) return;
    const int32_t next = NextBest(decided);
    if (next < 0) return;
    decided.expert_ids.back() = next;
    kernels::scalar::CombineWeights(config.router_rule(), decided.scores,
                                    decided.expert_ids, decided.weights);
  };
}

/// For 1 % of the tokens the backward pass finds the slots in another order
/// than the forward pass left them.
class RecomputedChoice : public ExchangeProxy {
 public:
  RecomputedChoice(std::unique_ptr<Exchange> inner, size_t layer, uint64_t seed,
                   std::shared_ptr<const RunClock> clock)
      : ExchangeProxy(std::move(inner)),
        layer_(layer),
        rng_(seed, StreamId("mutants/recomputed_choice")),
        clock_(std::move(clock)) {}

  void CombineBackward(MatrixView<const float> dout,
                       MatrixView<float> expert_out) override {
    ExchangeProxy::CombineBackward(dout, expert_out);
    const RowMap rows = MapRows();
    for (size_t t = 0; t < rows.tokens(); ++t) {
      const uint64_t at =
          (static_cast<uint64_t>(clock_->step) << 8 | layer_) << 32 | t;
      if (rng_.Below(at, 100) != 0 || rows.slots() < 2) continue;
      std::swap_ranges(expert_out.Row(rows(t, 0)),
                       expert_out.Row(rows(t, 0)) + expert_out.cols(),
                       expert_out.Row(rows(t, 1)));
    }
  }

 private:
  size_t layer_;
  CounterRng rng_;
  std::shared_ptr<const RunClock> clock_;
};

void TopKDiffersInRecomputation(MutantContext& context) {
  context.hooks.decorate_exchange =
      [seed = context.seed, clock = context.clock](
          size_t layer,
          std::unique_ptr<Exchange> inner) -> std::unique_ptr<Exchange> {
    return std::make_unique<RecomputedChoice>(std::move(inner), layer, seed,
                                              clock);
  };
}

bool IsGate(const model::Parameter& parameter) {
  return parameter.name.ends_with("moe.router.gate.weight");
}

/// Zeroes the rows [first share, all) of the gates' gradients.
auto ZeroGateGradient(size_t kept_of_two) {
  return [kept_of_two](MutantContext& context) {
    context.hooks.after_backward =
        [kept_of_two](int64_t /*step*/, model::ParameterSet& gradients) {
          for (model::Parameter& gradient : gradients.parameters()) {
            if (!IsGate(gradient)) continue;
            Matrix<float>& values = gradient.values;
            const size_t kept = values.rows() * kept_of_two / 2;
            std::fill(values.Row(kept), values.data() + values.size(), 0.0f);
          }
        };
  };
}

/// Nothing balances the experts: the term that should is computed and dropped.
void BalanceDiscarded(MutantContext& context) {
  context.hooks.after_update = [](int64_t /*step*/,
                                  model::ParameterSet& /*weights*/,
                                  MatrixView<float> expert_bias) {
    for (size_t i = 0; i < expert_bias.rows(); ++i) {
      std::fill(expert_bias.Row(i), expert_bias.Row(i) + expert_bias.cols(),
                0.0f);
    }
  };
}

}  // namespace

std::vector<Mutant> RoutingMutants() {
  const std::string group = "routing";
  return {
      {.name = "bf16_scores",
       .catalogue = 40,
       .group = group,
       .what = "Experts are chosen by scores rounded to BF16",
       .link = "https://github.com/ViperEkura/AstrAI/pull/57",
       .plant = ScoresInBf16},
      {.name = "tie_break_epsilon",
       .catalogue = 41,
       .group = group,
       .what = "A tie-break of 1e-4 per expert reorders unequal scores",
       .link = "https://github.com/sgl-project/sglang/pull/31768",
       .plant = TieBreakEpsilon},
      {.name = "recomputed_top_k",
       .catalogue = 42,
       .group = group,
       .what = "For 1 % of tokens the backward pass has the slots in another "
               "order",
       .link = "https://github.com/NVIDIA-NeMo/Automodel/pull/3140",
       .plant = TopKDiffersInRecomputation},
      {.name = "normalised_before_top_k",
       .catalogue = 43,
       .group = group,
       .what = "Combine weights are normalised over all experts",
       .link = "https://github.com/NVIDIA/Megatron-LM/issues/955",
       .plant = NormaliseBeforeChoice},
      {.name = "router_gradient_lost",
       .catalogue = 44,
       .group = group,
       .what = "Gates get no gradient",
       .link = "https://github.com/jingyaogong/minimind/pull/859",
       .plant = ZeroGateGradient(0)},
      {.name = "router_gradient_partial",
       .catalogue = 45,
       .group = group,
       .what = "Half of the gates' rows get no gradient",
       .link = "https://github.com/huggingface/transformers/issues/48687",
       .plant = ZeroGateGradient(1)},
      {.name = "balance_discarded",
       .catalogue = 46,
       .group = group,
       .what = "The selection bias that balances the experts stays 0",
       .link = "https://github.com/NVIDIA-NeMo/Automodel/issues/1408",
       .note = "this model balances by a bias, not by an auxiliary loss",
       .plant = BalanceDiscarded},
      {.name = "gate_weights_swapped",
       .catalogue = 47,
       .group = group,
       .what = "The combine weights of a token's slots are in reverse order",
       .link = "",
       .plant = SwapGateWeights},
      {.name = "third_expert",
       .catalogue = 48,
       .group = group,
       .what = "1 % of tokens go to the next best expert in their last slot",
       .link = "",
       .plant = ThirdExpert},
  };
}

}  // namespace isoloss::qualification
