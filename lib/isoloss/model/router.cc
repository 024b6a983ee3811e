#include "isoloss/model/router.h"

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {
namespace {

/// Keeps the division by the sum of scores finite (torchtitan's constant).
constexpr float kNormFloor = 1e-20f;

/// Index of the largest value among those not yet taken, the lower index of
/// equals; marks it as taken. At least one must be free.
size_t TakeLargest(std::span<const float> values, std::span<char> taken) {
  size_t best = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (taken[i]) continue;
    if (best == values.size() || values[i] > values[best]) best = i;
  }
  ISOLOSS_ASSERT(best < values.size());
  taken[best] = 1;
  return best;
}

/// Buffers of the choice for one token, kept from token to token.
struct Selection {
  std::vector<float> biased;        // [E]
  std::vector<char> taken;          // [E]
  std::vector<float> group_scores;  // [groups]
  std::vector<char> group_kept;     // [groups]
};

/// Marks the experts outside the best groups as taken. None is taken before.
void LimitGroups(const ModelConfig& config, Selection& s) {
  const size_t groups = config.num_expert_groups;
  const size_t size = config.num_experts / groups;
  s.group_scores.resize(groups);
  for (size_t g = 0; g < groups; ++g) {
    const auto scores = std::span(s.biased).subspan(g * size, size);
    const auto taken = std::span(s.taken).subspan(g * size, size);
    const size_t first = TakeLargest(scores, taken);
    s.group_scores[g] = scores[first] + scores[TakeLargest(scores, taken)];
  }
  s.group_kept.assign(groups, 0);
  for (size_t n = 0; n < config.num_limited_groups; ++n) {
    TakeLargest(s.group_scores, s.group_kept);
  }
  for (size_t e = 0; e < s.taken.size(); ++e) {
    s.taken[e] = s.group_kept[e / size] == 0 ? 1 : 0;
  }
}

float SumOfChosen(std::span<const float> scores,
                  std::span<const int32_t> expert_ids) {
  float sum = 0.0f;
  for (const int32_t id : expert_ids) sum += scores[static_cast<size_t>(id)];
  return sum + kNormFloor;
}

/// How many of `ids` are not among `others`.
int64_t CountMissing(std::span<const int32_t> ids,
                     std::span<const int32_t> others) {
  return std::count_if(ids.begin(), ids.end(), [&](int32_t id) {
    return std::find(others.begin(), others.end(), id) == others.end();
  });
}

}  // namespace

void SelectExperts(const ModelConfig& config, std::span<const float> scores,
                   std::span<const float> bias, std::span<int32_t> expert_ids) {
  static thread_local Selection selection;
  Selection& s = selection;
  s.biased.resize(scores.size());
  for (size_t e = 0; e < scores.size(); ++e) s.biased[e] = scores[e] + bias[e];
  s.taken.assign(scores.size(), 0);
  if (config.num_expert_groups > 0) LimitGroups(config, s);
  for (int32_t& id : expert_ids) {
    id = static_cast<int32_t>(TakeLargest(s.biased, s.taken));
  }
}

void CombineWeights(const ModelConfig& config, std::span<const float> scores,
                    std::span<const int32_t> expert_ids,
                    std::span<float> weights) {
  const auto scale = static_cast<float>(config.route_scale);
  const float sum = config.route_norm ? SumOfChosen(scores, expert_ids) : 1.0f;
  for (size_t k = 0; k < weights.size(); ++k) {
    weights[k] = scores[static_cast<size_t>(expert_ids[k])] / sum * scale;
  }
}

void RouterScoreBackward(const ModelConfig& config,
                         std::span<const float> scores,
                         std::span<const int32_t> expert_ids,
                         std::span<const float> dweights,
                         std::span<float> dlogits) {
  const auto scale = static_cast<float>(config.route_scale);
  const float sum = config.route_norm ? SumOfChosen(scores, expert_ids) : 1.0f;
  const auto score = [&](size_t k) {
    return scores[static_cast<size_t>(expert_ids[k])];
  };
  // Normalising removes the part of dweights that only scales the sum.
  float mean = 0.0f;
  if (config.route_norm) {
    for (size_t k = 0; k < dweights.size(); ++k) {
      mean += dweights[k] * (score(k) / sum);
    }
  }
  // dlogits holds dscores first: zero for experts that were not chosen.
  std::fill(dlogits.begin(), dlogits.end(), 0.0f);
  for (size_t k = 0; k < dweights.size(); ++k) {
    dlogits[static_cast<size_t>(expert_ids[k])] =
        scale / sum * (dweights[k] - mean);
  }
  if (config.score_function == ScoreFunction::kSigmoid) {
    for (size_t e = 0; e < scores.size(); ++e) {
      dlogits[e] *= scores[e] * (1.0f - scores[e]);
    }
  } else {
    const float dot = kernels::RowDot(dlogits, scores);
    for (size_t e = 0; e < scores.size(); ++e) {
      dlogits[e] = scores[e] * (dlogits[e] - dot);
    }
  }
}

Router::Router(LayerContext& context, const std::string& name, size_t moe_layer,
               Scratch& scratch)
    : context_(context),
      name_(name),
      moe_layer_(moe_layer),
      scratch_(scratch),
      gate_(context, name + ".gate"),
      bias_(context.config.num_experts, 0.0f) {}

void Router::LoadBias(std::span<const float> bias) {
  ISOLOSS_ASSERT(bias.size() == bias_.size());
  std::copy(bias.begin(), bias.end(), bias_.begin());
}

void Router::Forward(MatrixView<const float> b) {
  const ModelConfig& c = context_.config;
  const size_t tokens = b.rows();
  logits_.ResizeUninitialized(tokens, c.num_experts);
  scores_.ResizeUninitialized(tokens, c.num_experts);
  expert_ids_.ResizeUninitialized(tokens, c.top_k);
  weights_.ResizeUninitialized(tokens, c.top_k);
  gate_.QueueForward(b, context_.TokenLeaves(), kernels::Rounding::kFp32,
                     logits_.view());
  context_.gemms.Run();

  if (c.score_function == ScoreFunction::kSigmoid) {
    kernels::ElementSigmoid(logits_.view(), scores_.view(), context_.team);
  } else {
    kernels::RowSoftmax(logits_.view(), scores_.view(), context_.team);
  }
  sums_.Begin(tokens);
  kernels::ForEqualRuns(tokens, tokens / kernels::kMinRowsPerRun,
                        kernels::kTokenLeaf, context_.team,
                        [&](size_t first, size_t count) {
                          for (size_t t = first; t < first + count; ++t)
                            Choose(t);
                        });
  context_.TapOutput(name_, "scores", scores_.view());
  if (context_.tap != nullptr) {
    context_.tap->OnRouting(name_, expert_ids_.view(), context_.first_token);
  }
  context_.TapOutput(name_, "topk_weights", weights_.view());
}

void Router::Choose(size_t token) {
  const ModelConfig& c = context_.config;
  const std::span<const float> scores(scores_.Row(token), c.num_experts);
  const std::span<int32_t> ids(expert_ids_.Row(token), c.top_k);
  const size_t global_token = context_.first_token + token;
  int64_t flips = 0;
  const RoutingSource* source = context_.routing;
  if (source == nullptr || source->IsReplay()) {
    SelectExperts(c, scores, bias_, ids);
  }
  if (source != nullptr) {
    static thread_local std::vector<int32_t> own;
    own.assign(ids.begin(), ids.end());
    source->Choose(moe_layer_, global_token, ids);
    if (source->IsReplay()) flips = CountMissing(ids, own);
  }
  const std::span<float> weights(weights_.Row(token), c.top_k);
  CombineWeights(c, scores, ids, weights);
  if (context_.edit_routing) {
    context_.edit_routing(
        {moe_layer_, global_token, scores, bias_, ids, weights});
  }
  sums_.Add(token, global_token, scores, ids, flips);
}

void Router::Backward(MatrixView<const float> b,
                      MatrixView<const float> dweights, MatrixView<float> db) {
  const ModelConfig& c = context_.config;
  context_.TapGradient(name_, "topk_weights", dweights);
  Matrix<float>& dlogits = scratch_.dlogits;
  dlogits.ResizeUninitialized(b.rows(), c.num_experts);
  kernels::ForEachRow(b.rows(), context_.team, [&](size_t t) {
    RouterScoreBackward(
        c, {scores_.Row(t), c.num_experts}, {expert_ids_.Row(t), c.top_k},
        {dweights.Row(t), c.top_k}, {dlogits.Row(t), c.num_experts});
  });
  gate_.QueueBackward(b, dlogits.view(), context_.TokenLeaves(), db);
  context_.gemms.Run();
}

}  // namespace isoloss::model
