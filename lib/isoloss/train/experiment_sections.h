// Describes the content of each section of an experiment file. The Visit
// functions below read it, list it as known, and print it (config/reader.h).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/named.h"
#include "isoloss/config/reader.h"
#include "isoloss/config/writer.h"
#include "isoloss/device/devices.h"
#include "isoloss/expert_parallel/payload.h"
#include "isoloss/model/config.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/config.h"
#include "isoloss/transport/transport.h"

namespace isoloss::train {

using config::Interval;
using config::kMaxInt;
using expert_parallel::Algorithm;
using expert_parallel::CombineOrder;
using expert_parallel::WeightSite;
using model::ModelConfig;
using model::ScoreFunction;
using optim::DecayShape;

inline constexpr int64_t kMaxSize = 1 << 20;
inline constexpr int64_t kMaxLayers = 1000;
inline constexpr int64_t kMaxSteps = 10'000'000;
inline constexpr int64_t kMaxRanks = transport::kMaxRanks;
inline constexpr Interval kUnit = {0, 1};
inline constexpr Interval kUnitOpenLow = {
    .low = 0, .high = 1, .low_open = true};
inline constexpr Interval kUnitOpenHigh = {
    .low = 0, .high = 1, .high_open = true};
inline constexpr Interval kUnitOpen = {0, 1, true, true};
/// An epsilon that keeps a quotient finite must be a normal number in FP32.
inline constexpr Interval kEpsilon = {1e-30, 1};
inline constexpr Interval kPositive = {.low = 0, .high = 1e9, .low_open = true};
/// A deadline is at most a day, in seconds.
inline constexpr Interval kDeadline = {
    .low = 0, .high = 86400, .low_open = true};

inline constexpr Interval kPeriod = {0, 1e9};
/// The upper end lies beyond any model of our days.
inline constexpr Interval kParameters = {1, 1e15};

inline const std::vector<std::string> kSources = {"files", "tokens",
                                                  "synthetic"};
inline constexpr Named<int> kTokenTypes[] = {{"uint16", 16}, {"uint32", 32}};
inline constexpr Named<ScoreFunction> kScoreFunctions[] = {
    {"sigmoid", ScoreFunction::kSigmoid}, {"softmax", ScoreFunction::kSoftmax}};
inline constexpr Named<DecayShape> kDecayShapes[] = {
    {"linear", DecayShape::kLinear},
    {"sqrt", DecayShape::kSqrt},
    {"cosine", DecayShape::kCosine}};
inline constexpr Named<Algorithm> kAlgorithms[] = {
    {"flat", Algorithm::kFlat},
    {"rank", Algorithm::kRank},
    {"node", Algorithm::kNode},
    {"titan_bf16", Algorithm::kTitanBf16}};
inline constexpr Named<WeightSite> kWeightSites[] = {
    {"source", WeightSite::kSource},
    {"expert_out", WeightSite::kExpertOut},
    {"before_fc2", WeightSite::kBeforeFc2}};
inline constexpr Named<CombineOrder> kCombineOrders[] = {
    {"rank", CombineOrder::kRank}, {"last_slot", CombineOrder::kLastSlot}};
using expert_parallel::kPaddings;
inline constexpr Named<Perturb> kPerturbs[] = {{"one_ulp", Perturb::kOneUlp}};
inline constexpr Named<RoutingMode> kRoutingModes[] = {
    {"learned", RoutingMode::kLearned},
    {"forced_balance", RoutingMode::kForcedBalance},
    {"replay", RoutingMode::kReplay}};

template <typename Fields>
void Visit(Fields& fields, ModelConfig& model) {
  const auto size = [&](std::string_view key, size_t& value) {
    fields.Integer(key, value, 1, kMaxSize);
  };
  // 0 says that there is no value, which further keys may rule out.
  const auto optional_size = [&](std::string_view key, size_t& value) {
    fields.Integer(key, value, 0, kMaxSize);
  };
  size("vocab_size", model.vocab_size);
  size("dim", model.dim);
  fields.Integer("n_layers", model.n_layers, 1, kMaxLayers);
  fields.Integer("n_dense_layers", model.n_dense_layers, 0, kMaxLayers);
  size("n_heads", model.n_heads);
  optional_size("q_lora_rank", model.q_lora_rank);
  size("kv_lora_rank", model.kv_lora_rank);
  size("qk_nope_head_dim", model.qk_nope_head_dim);
  size("qk_rope_head_dim", model.qk_rope_head_dim);
  size("v_head_dim", model.v_head_dim);
  optional_size("dense_hidden_dim", model.dense_hidden_dim);
  optional_size("moe_hidden_dim", model.moe_hidden_dim);
  optional_size("num_experts", model.num_experts);
  optional_size("num_shared_experts", model.num_shared_experts);
  optional_size("top_k", model.top_k);
  optional_size("num_expert_groups", model.num_expert_groups);
  optional_size("num_limited_groups", model.num_limited_groups);
  fields.Choice("score_function", model.score_function, kScoreFunctions);
  fields.Flag("route_norm", model.route_norm);
  fields.Real("route_scale", model.route_scale, kPositive);
  fields.Flag("tied_embeddings", model.tied_embeddings);
  fields.Real("norm_eps", model.norm_eps, kEpsilon);
  fields.Real("rope_theta", model.rope_theta, kPositive);
  fields.Flag("yarn", model.yarn);
  fields.Real("rope_factor", model.rope_factor, kPositive);
  fields.Real("beta_fast", model.beta_fast, kPositive);
  fields.Real("beta_slow", model.beta_slow, kPositive);
  fields.Real("original_seq_len", model.original_seq_len, kPositive);
  fields.Real("mscale", model.mscale, {0, 100});
}

template <typename Fields>
void Visit(Fields& fields, DataConfig& data) {
  fields.OneOf("source", data.source, kSources);
  fields.Integer("sequence_length", data.sequence_length, 1, kMaxSize);
  fields.Real("held_out_share", data.held_out_share, kUnitOpen);
  if (data.source == "synthetic") {
    fields.Integer("order", data.order, 1, 2);
    fields.Integer("noise_levels", data.noise_levels, 1, 64);
    fields.Integer("tokens", data.tokens, 1, 1'000'000'000);
    fields.Integer("seed", data.seed, 0, kMaxInt);
    return;
  }
  fields.Texts("paths", data.paths);
  if (data.source == "files") fields.Texts("include", data.include);
  if (data.source == "tokens") {
    fields.Choice("token_type", data.token_bits, kTokenTypes);
  }
}

template <typename Fields>
void Visit(Fields& fields, TrainConfig& train) {
  fields.Integer("steps", train.steps, 1, kMaxSteps);
  fields.Integer("sequences_per_batch", train.sequences_per_batch, 1, kMaxSize);
  fields.Numbers("seeds", train.seeds);
  fields.Real("lr", train.lr, kUnitOpenLow);
  fields.Integer("warmup_steps", train.warmup_steps, 0, kMaxSteps);
  fields.Real("decay_ratio", train.decay_ratio, kUnit);
  fields.Choice("decay_type", train.decay_type, kDecayShapes);
  fields.Real("min_lr_factor", train.min_lr_factor, kUnit);
  fields.Real("clip_norm", train.clip_norm, kPositive);
  fields.Real("weight_decay", train.weight_decay, kUnit);
  fields.Real("beta1", train.beta1, kUnitOpenHigh);
  fields.Real("beta2", train.beta2, kUnitOpenHigh);
  fields.Real("eps", train.eps, kEpsilon);
  fields.Real("load_balance_coeff", train.load_balance_coeff, kUnit);
}

template <typename Fields>
void Visit(Fields& fields, ExchangeConfig& exchange) {
  static const std::vector<std::string> kPayloads =
      expert_parallel::PayloadNames();
  expert_parallel::ExchangeOptions& options = exchange.options;
  fields.Choice("exchange", options.algorithm, kAlgorithms);
  fields.OneOf("payload", options.payload, kPayloads);
  fields.OneOf("gradient_payload", options.gradient_payload, kPayloads);
  fields.Choice("weight_site", exchange.weight_site, kWeightSites);
  fields.Choice("combine_order", options.order, kCombineOrders);
  fields.IntegerOf("expert_padding", options.padding, kPaddings);
}

template <typename Fields>
void Visit(Fields& fields, ParallelConfig& parallel) {
  static const std::vector<std::string> kTransports =
      transport::TransportNames();
  fields.Integer("ranks", parallel.mesh.ranks, 1, kMaxRanks);
  fields.Integer("expert_data_parallel", parallel.mesh.replicas, 1, kMaxRanks);
  fields.Integer("ranks_per_node", parallel.mesh.ranks_per_node, 1, kMaxRanks);
  fields.Integer("dispatch_units", parallel.dispatch_units, 1, kMaxSize);
  Visit(fields, parallel.exchange);
  fields.OneOf("transport", parallel.transport, kTransports);
  fields.OneOf("on", parallel.on, device::DeviceNames());
  fields.Integer("micro_batches", parallel.micro_batches, 1, kMaxSize);
  fields.Integer("workers", parallel.workers, 0, 4096);
  fields.Real("deadline_seconds", parallel.deadline_seconds, kDeadline);
  fields.Integer("shuffle_seed", parallel.shuffle_seed, 0, kMaxInt);
}

template <typename Fields>
void Visit(Fields& fields, RoutingConfig& routing) {
  fields.Choice("mode", routing.mode, kRoutingModes);
  if (routing.mode == RoutingMode::kReplay) {
    fields.Text("replay", routing.replay);
  }
}

template <typename Fields>
void Visit(Fields& fields, Arm& arm) {
  fields.Text("recipe", arm.recipe);
  fields.Texts("include", arm.include);
  fields.Texts("exclude", arm.exclude);
  fields.Choice("perturb", arm.perturb, kPerturbs);
  if (arm.perturb) {
    fields.Integer("perturb_draw", arm.perturb_draw, 1, kMaxInt);
  }
  Visit(fields, arm.exchange);
}

template <typename Fields>
void Visit(Fields& fields, LaterRecipe& later) {
  fields.Real("from", later.from, config::Open(0, 1), "of the steps");
  fields.Text("recipe", later.recipe);
  fields.Texts("include", later.include);
  fields.Texts("exclude", later.exclude);
}

template <typename Fields>
void Visit(Fields& fields, LogConfig& log) {
  fields.Integer("eval_every", log.eval_every, 1, kMaxSteps);
  fields.Integer("eval_sequences", log.eval_sequences, 1, kMaxSize);
  fields.Flag("routing", log.routing);
  fields.Integer("statistics_first", log.statistics_first, 0, kMaxSteps);
  fields.Integer("statistics_every", log.statistics_every, 0, kMaxSteps);
  fields.Texts("statistics_tensors", log.statistics_tensors);
  fields.Integer("digests_first", log.digests_first, 0, kMaxSteps);
  fields.Integer("digests_every", log.digests_every, 0, kMaxSteps);
  fields.Texts("dump_tensors", log.dump_tensors);
  fields.Numbers("dump_steps", log.dump_steps);
  fields.Integer("checkpoint_every", log.checkpoint_every, 0, kMaxSteps);
  fields.Real("checkpoint_minutes", log.checkpoint_minutes, kPeriod);
  fields.Real("refresh_seconds", log.refresh_seconds, kPeriod);
}

template <typename Fields>
void Visit(Fields& fields, GateConfig& gate) {
  fields.Text("policy", gate.policy);
  fields.Real("margin_percent", gate.margin_percent, config::Open(0, 100),
              "% of the baseline's loss");
  fields.Real("spread_percent", gate.spread_percent, config::Open(0, 1000),
              "% of the baseline's loss");
  fields.Names("control", gate.control);
  fields.Numbers("looks", gate.looks);
}

template <typename Fields>
void Visit(Fields& fields, TuningConfig& tuning) {
  constexpr Interval kLosses = {
      .low = 0, .high = std::numeric_limits<double>::infinity()};
  fields.Reals("rates", tuning.rates, kUnitOpenLow);
  fields.Reals("held_out", tuning.held_out, kLosses);
  fields.Numbers("seeds", tuning.seeds);
  fields.Text("configuration", tuning.configuration);
  fields.Reals("seed_optima", tuning.seed_optima, kUnitOpenLow);
}

template <typename Fields>
void Visit(Fields& fields, ScaledTuningConfig& scaled) {
  fields.Real("parameters", scaled.parameters, kParameters);
  Visit(fields, scaled.sweep);
}

}  // namespace isoloss::train
