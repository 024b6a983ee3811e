#include "isoloss/compare/producers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace isoloss::compare {
namespace {

/// A result and what it is computed from, words apart. $L is the layer, $F its
/// feed-forward module; the other words with $ are those of Producers::Expand.
struct Rule {
  std::string_view result;
  std::string_view inputs;
};

constexpr Rule kRules[] = {
    {"tok_embeddings_output", "tok_embeddings_weight"},
    {"$L.attention_norm_output", "$in $L.attention_norm_weight"},
    {"$L.attention.wq_activation", "$L.attention_norm_output"},
    {"$L.attention.wq_a_activation", "$L.attention_norm_output"},
    {"$L.attention.wkv_a_activation", "$L.attention_norm_output"},
    {"$L.attention.q_norm_output",
     "$L.attention.wq_a_output $L.attention.q_norm_weight"},
    {"$L.attention.wq_b_activation", "$L.attention.q_norm_output"},
    {"$L.attention.kv_norm_output",
     "$L.attention.wkv_a_output $L.attention.kv_norm_weight"},
    {"$L.attention.wkv_b_activation", "$L.attention.kv_norm_output"},
    {"$L.attention.q_pe_rotated_output", "$q_output"},
    {"$L.attention.k_pe_rotated_output", "$L.attention.wkv_a_output"},
    {"$L.attention.inner_attention_output",
     "$L.attention.q_pe_rotated_output $L.attention.k_pe_rotated_output "
     "$q_output $L.attention.wkv_b_output"},
    {"$L.attention.wo_activation", "$L.attention.inner_attention_output"},
    {"$L.attention_residual_output", "$in $L.attention.wo_output"},
    {"$L.ffn_norm_output", "$L.attention_residual_output $L.ffn_norm_weight"},
    {"$F.w1_activation", "$L.ffn_norm_output"},
    {"$F.w3_activation", "$L.ffn_norm_output"},
    {"$F.w2_activation", "$F.w1_output $F.w3_output"},
    {"$L.moe.router.gate_activation", "$L.ffn_norm_output"},
    {"$L.moe.router.scores_output", "$L.moe.router.gate_output"},
    {"$L.moe.router.topk_weights_output", "$L.moe.router.scores_output"},
    {"$L.moe.routed_experts_output",
     "$L.moe.routed_experts.w2_output $L.moe.router.topk_weights_output"},
    {"$L.moe_output",
     "$L.moe.routed_experts_output $L.moe.shared_experts.w2_output"},
    {"$L_output", "$L.attention_residual_output $ffn_output"},
    {"norm_output", "$last_output norm_weight"},
    {"lm_head_activation", "norm_output"},
    {"loss_output", "lm_head_output"},

    {"lm_head_gradient", "lm_head_output"},
    {"norm_gradient", "lm_head_dgrad"},
    {"$L_gradient", "$stream_gradient"},
    {"$L.moe.routed_experts.w2_gradient",
     "$L_gradient $L.moe.router.topk_weights_output"},
    {"$F.w2_gradient", "$L_gradient"},
    {"$F.w1_gradient", "$F.w2_dgrad $F.w1_output $F.w3_output"},
    {"$F.w3_gradient", "$F.w2_dgrad $F.w1_output $F.w3_output"},
    {"$L.moe.router.topk_weights_gradient",
     "$L_gradient $L.moe.routed_experts.w2_output"},
    {"$L.moe.router.gate_gradient",
     "$L.moe.router.topk_weights_gradient $L.moe.router.scores_output"},
    {"$L.ffn_norm_gradient", "$ffn_gradient"},
    {"$L.attention.wo_gradient",
     "$L_gradient $L.ffn_norm_gradient $L.attention_residual_output "
     "$L.ffn_norm_weight"},
    {"$L.attention.inner_attention.q_gradient", "$core_gradient"},
    {"$L.attention.inner_attention.k_gradient", "$core_gradient"},
    {"$L.attention.wkv_b_gradient",
     "$L.attention.inner_attention.k_gradient $core_gradient"},
    {"$L.attention.wq_gradient", "$L.attention.inner_attention.q_gradient"},
    {"$L.attention.wq_b_gradient", "$L.attention.inner_attention.q_gradient"},
    {"$L.attention.wq_a_gradient",
     "$L.attention.wq_b_dgrad $L.attention.wq_a_output "
     "$L.attention.q_norm_weight"},
    {"$L.attention.wkv_a_gradient",
     "$L.attention.wkv_b_dgrad $L.attention.inner_attention.k_gradient "
     "$L.attention.wkv_a_output $L.attention.kv_norm_weight"},
    {"$L.attention_norm_gradient", "$L.attention.wkv_a_dgrad"},
    {"tok_embeddings_gradient", "$stream_gradient"},

    // What a dgrad was added to.
    {"$F.w3_dgrad", "$F.w1_dgrad"},
    {"$L.attention.wkv_a_dgrad", "$query_dgrad"},

    // Weights of norms and the embedding have no GEMM of their own.
    {"$L.attention.q_norm_update",
     "$L.attention.wq_b_dgrad $L.attention.wq_a_output"},
    {"$L.attention.kv_norm_update",
     "$L.attention.wkv_b_dgrad $L.attention.wkv_a_output"},
    {"$L.attention_norm_update", "$L.attention_norm_gradient $in"},
    {"$L.ffn_norm_update", "$L.ffn_norm_gradient $L.attention_residual_output"},
    {"norm_update", "norm_gradient $last_output"},
    {"tok_embeddings_update", "tok_embeddings_gradient"},
};

constexpr std::string_view kFeedForwards[] = {
    "$L.feed_forward", "$L.moe.routed_experts", "$L.moe.shared_experts"};
constexpr std::string_view kGemms[] = {"wq",    "wq_a", "wq_b",   "wkv_a",
                                       "wkv_b", "wo",   "w1",     "w2",
                                       "w3",    "gate", "lm_head"};

bool IsGemm(std::string_view module) {
  const std::string_view leaf = module.substr(module.rfind('.') + 1);
  return std::ranges::count(kGemms, leaf) > 0;
}

/// 7 of "layers.7.moe" and "layers.7_output"; -1 of what is in no layer.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int64_t layer = -1;
  std::from_chars(name.data(), name.data() + name.size(), layer);
  return layer;
}

void Replace(std::string& text, std::string_view word,
             std::string_view meaning) {
  const size_t at = text.find(word);
  if (at != std::string::npos) text.replace(at, word.size(), meaning);
}

const Rule* FindRule(std::string_view result) {
  const auto* found = std::ranges::find(kRules, result, &Rule::result);
  return found == std::end(kRules) ? nullptr : found;
}

}  // namespace

Producers::Producers(const std::vector<std::string>& names)
    : names_(names.begin(), names.end()) {
  for (const std::string& name : names) {
    last_layer_ = std::max(last_layer_, LayerOf(name));
  }
}

bool Producers::Any(const std::string& prefix) const {
  const auto found = names_.lower_bound(prefix);
  return found != names_.end() && found->starts_with(prefix);
}

std::optional<std::vector<std::string>> Producers::Of(
    std::string_view module, std::string_view kind) const {
  if (kind == "weight") return std::vector<std::string>{};
  const auto own = [module](std::string_view other) {
    return fmt::format("{}_{}", module, other);
  };
  if (kind == "parameter") return std::vector{own("update")};
  if (kind == "wgrad") return std::vector{own("gradient"), own("activation")};

  const int64_t layer = LayerOf(module);
  std::string result = own(kind);
  if (layer >= 0) Replace(result, fmt::format("layers.{}", layer), "$L");
  const Rule* rule = FindRule(result);
  std::string_view feed_forward;
  for (const std::string_view candidate : kFeedForwards) {
    if (!result.starts_with(fmt::format("{}.", candidate))) continue;
    feed_forward = candidate;
    Replace(result, candidate, "$F");
    if (rule == nullptr) rule = FindRule(result);
  }

  std::vector<std::string> inputs;
  if (kind == "output" &&
      (IsGemm(module) || names_.contains(own("activation")))) {
    inputs = {own("activation"), own("weight")};
  } else if (kind == "dgrad") {
    inputs = {own("gradient"), own("weight")};
  } else if (rule == nullptr && kind == "update") {
    inputs = {own("wgrad")};
  }
  if (rule != nullptr) {
    const auto others = Expand(rule->inputs, layer, feed_forward);
    inputs.insert(inputs.end(), others.begin(), others.end());
  }
  if (inputs.empty()) return std::nullopt;
  return inputs;
}

std::vector<std::string> Producers::Expand(
    std::string_view inputs, int64_t layer,
    std::string_view feed_forward) const {
  std::vector<std::string> names;
  std::string words(inputs);
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    std::string word = words.substr(begin, end - begin);
    Replace(word, "$F", feed_forward);
    const std::string expanded = Expand(word, layer);
    begin = end + 1;
    if (expanded.find(' ') == std::string::npos) {
      names.push_back(expanded);
      continue;
    }
    const auto more = Expand(expanded, layer, feed_forward);
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

std::string Producers::Expand(std::string_view input, int64_t layer) const {
  const std::string here = fmt::format("layers.{}", layer);
  const std::string next = fmt::format("layers.{}", layer + 1);
  const bool low_rank =
      Any(here + ".attention.wq_a_") || Any(here + ".attention.wq_b_");
  const bool experts = Any(here + ".moe");
  const bool shared = Any(here + ".moe.shared_experts") || Any(here + ".moe_");
  if (input == "$in") {
    return layer == 0 ? "tok_embeddings_output"
                      : fmt::format("layers.{}_output", layer - 1);
  }
  if (input == "$last_output")
    return fmt::format("layers.{}_output", last_layer_);
  if (input == "$q_output") {
    return here +
           (low_rank ? ".attention.wq_b_output" : ".attention.wq_output");
  }
  if (input == "$query_dgrad") {
    return here + (low_rank ? ".attention.wq_a_dgrad" : ".attention.wq_dgrad");
  }
  if (input == "$ffn_output") {
    if (!experts) return here + ".feed_forward.w2_output";
    return here + (shared ? ".moe_output" : ".moe.routed_experts_output");
  }
  if (input == "$ffn_gradient") {
    if (!experts) return here + ".feed_forward.w3_dgrad";
    std::string names = here + ".moe.routed_experts.w3_dgrad " + here +
                        ".moe.router.gate_dgrad";
    if (shared) names += " " + here + ".moe.shared_experts.w3_dgrad";
    return names;
  }
  if (input == "$core_gradient") {
    return fmt::format(
        "{0}.attention.wo_dgrad {0}.attention.q_pe_rotated_output "
        "{0}.attention.k_pe_rotated_output {1} {0}.attention.wkv_b_output",
        here, Expand("$q_output", layer));
  }
  // Of the residual stream: the branch behind it and its norm join it.
  if (input == "$stream_gradient") {
    if (layer == last_layer_) {
      return fmt::format("norm_gradient {}_output norm_weight", here);
    }
    return fmt::format(
        "{0}.attention.wo_gradient {0}.attention_norm_gradient {1} "
        "{0}.attention_norm_weight",
        next, Expand("$in", layer + 1));
  }
  std::string name(input);
  Replace(name, "$L", here);
  return name;
}

}  // namespace isoloss::compare
