#include "isoloss/train/presets.h"

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"

namespace isoloss::train {
namespace {

using model::ScoreFunction;

/// The demo trains a pair in seconds on two cores. All widths except wkv_a's
/// (32 + 8) are whole MX blocks.
Preset Dsv3Nano() {
  return {
      .name = "dsv3-nano",
      .model = {.vocab_size = 256,
                .dim = 96,
                .n_layers = 2,
                .n_dense_layers = 1,
                .n_heads = 4,
                .q_lora_rank = 0,
                .kv_lora_rank = 32,
                .qk_nope_head_dim = 16,
                .qk_rope_head_dim = 8,
                .v_head_dim = 16,
                .dense_hidden_dim = 256,
                .moe_hidden_dim = 64,
                .num_experts = 8,
                .num_shared_experts = 1,
                .top_k = 2},
      .sequence_length = 128,
      .train = {.steps = 300,
                .sequences_per_batch = 8,
                .lr = 1.5e-3,
                .warmup_steps = 100,
                .min_lr_factor = 0,
                .load_balance_coeff = 0.01},
  };
}

/// Has DeepSeek-V3's features at a size for convergence studies on one
/// machine.
Preset Dsv3Small() {
  return {
      .name = "dsv3-small",
      .model = {.vocab_size = 256,
                .dim = 256,
                .n_layers = 4,
                .n_dense_layers = 1,
                .n_heads = 4,
                .q_lora_rank = 128,
                .kv_lora_rank = 64,
                .qk_nope_head_dim = 32,
                .qk_rope_head_dim = 32,
                .v_head_dim = 64,
                .dense_hidden_dim = 1024,
                .moe_hidden_dim = 128,
                .num_experts = 16,
                .num_shared_experts = 1,
                .top_k = 4},
      .sequence_length = 256,
      .train = {.steps = 1000,
                .sequences_per_batch = 8,
                .lr = 1e-3,
                .warmup_steps = 100,
                .min_lr_factor = 0,
                .load_balance_coeff = 0.01},
  };
}

/// Returns the model of torchtitan's deepseek_v3 debugmodel,
/// models/deepseek_v3. Its 10-step schedule is not taken over: with 2 warm-up
/// steps and a bias rate of 0.001 a batch of this size may send every token to
/// one expert. Softmax scores of 8 experts start within some 0.03 of each
/// other, so that a rate of 0.01 swings all tokens from expert to expert. A
/// rate of 0.002 recovered from the warm-up (worst layer 1.97 x the mean, no
/// dead expert, at step 140 with 512 tokens a step); rates of 0.01 and 0.05 did
/// not.
Preset TorchtitanDebug() {
  return {
      .name = "torchtitan-debug",
      .model = {.vocab_size = 2048,
                .dim = 256,
                .n_layers = 6,
                .n_dense_layers = 1,
                .n_heads = 16,
                .q_lora_rank = 0,
                .kv_lora_rank = 512,
                .qk_nope_head_dim = 128,
                .qk_rope_head_dim = 64,
                .v_head_dim = 128,
                .dense_hidden_dim = 1024,
                .moe_hidden_dim = 256,
                .num_experts = 8,
                .num_shared_experts = 2,
                .top_k = 3,
                .score_function = ScoreFunction::kSoftmax,
                .route_norm = false,
                .route_scale = 1.0,
                .yarn = true,
                .rope_factor = 40.0,
                .mscale = 0.7},
      .sequence_length = 256,
      .train = {.steps = 300,
                .sequences_per_batch = 8,
                .lr = 8e-4,
                .warmup_steps = 100,
                .min_lr_factor = 0,
                .load_balance_coeff = 0.002},
  };
}

/// Returns DeepSeek-V3's routing (docs/model.md, section 6) and mesh with a
/// tiny model around it. It keeps 256 experts, top-8, sigmoid scores, at most 4
/// of 8 groups, normalised weights, 1 shared expert, one dense layer before the
/// MoE layers, and 256 ranks on nodes of 8. It does not keep any width, the
/// vocabulary, 58 of 61 layers, compressed queries and YaRN. In DeepSeek's own
/// job of 64 ranks a group of experts is a node. Here it is 4 nodes of 8 ranks,
/// with one expert per rank, so a token's experts lie on up to 8 nodes. With 64
/// ranks they lie on at most 4 nodes, as in DeepSeek's job. An expert is a
/// quarter as wide as the model (2048 of 7168 in the original), so that rows
/// and products keep their proportion. With 4096 tokens of C++ source per step
/// some experts get no tokens: 10 to 40 of the 512 in both layers were seen,
/// the busiest at 6 to 14 times the mean. There are more with twice the
/// learning rate, or with a bias rate of 0.01.
Preset Dsv3TopologyOf671b() {
  Preset preset = {
      .name = "dsv3-671b-topology",
      .model = {.vocab_size = 256,
                .dim = 256,
                .n_layers = 3,
                .n_dense_layers = 1,
                .n_heads = 4,
                .q_lora_rank = 0,
                .kv_lora_rank = 32,
                .qk_nope_head_dim = 16,
                .qk_rope_head_dim = 16,
                .v_head_dim = 32,
                .dense_hidden_dim = 256,
                .moe_hidden_dim = 64,
                .num_experts = 256,
                .num_shared_experts = 1,
                .top_k = 8,
                .num_expert_groups = 8,
                .num_limited_groups = 4},
      .sequence_length = 128,
      .train = {.steps = 50,
                .sequences_per_batch = 32,
                .lr = 5e-4,
                .warmup_steps = 25,
                .min_lr_factor = 0,
                .load_balance_coeff = 0.003},
  };
  preset.parallel.mesh.ranks = 256;
  preset.parallel.mesh.ranks_per_node = 8;
  return preset;
}

/// Returns torchtitan's 16B (DeepSeek-V2-Lite) in the same way. It keeps 64
/// experts, top-6, softmax scores that are neither normalised nor scaled, 2
/// shared experts, no compressed queries, and YaRN. It has 32 ranks on 4 nodes;
/// any divisor of 64 works, such as 8 in the published run.
Preset Dsv3TopologyOf16b() {
  Preset preset = {
      .name = "dsv3-16b-topology",
      .model = {.vocab_size = 256,
                .dim = 128,
                .n_layers = 3,
                .n_dense_layers = 1,
                .n_heads = 4,
                .q_lora_rank = 0,
                .kv_lora_rank = 32,
                .qk_nope_head_dim = 16,
                .qk_rope_head_dim = 16,
                .v_head_dim = 32,
                .dense_hidden_dim = 256,
                .moe_hidden_dim = 64,
                .num_experts = 64,
                .num_shared_experts = 2,
                .top_k = 6,
                .score_function = ScoreFunction::kSoftmax,
                .route_norm = false,
                .route_scale = 1.0,
                .yarn = true,
                .rope_factor = 40.0,
                .mscale = 0.7},
      .sequence_length = 128,
      .train = {.steps = 50,
                .sequences_per_batch = 32,
                .lr = 1e-3,
                .warmup_steps = 25,
                .min_lr_factor = 0,
                .load_balance_coeff = 0.001},
  };
  preset.parallel.mesh.ranks = 32;
  preset.parallel.mesh.ranks_per_node = 8;
  return preset;
}

/// Returns one layer with experts of torchtitan's 16B (DeepSeek-V2-Lite) at its
/// true width. It keeps every width, attention, the experts, their routing and
/// YaRN. It cuts the vocabulary (bytes instead of 102,400 tokens), 26 of 27
/// layers including the dense one, and sequences (512 of 4,096 tokens). It is
/// for memory and speed at true widths; the learning rate is that of the
/// original at its batch.
Preset Dsv3LayerOf16b() {
  return {
      .name = "dsv3-16b-layer",
      .model = {.vocab_size = 256,
                .dim = 2048,
                .n_layers = 1,
                .n_dense_layers = 0,
                .n_heads = 16,
                .q_lora_rank = 0,
                .kv_lora_rank = 512,
                .qk_nope_head_dim = 128,
                .qk_rope_head_dim = 64,
                .v_head_dim = 128,
                .dense_hidden_dim = 10944,
                .moe_hidden_dim = 1408,
                .num_experts = 64,
                .num_shared_experts = 2,
                .top_k = 6,
                .score_function = ScoreFunction::kSoftmax,
                .route_norm = false,
                .route_scale = 1.0,
                .yarn = true,
                .rope_factor = 40.0,
                .mscale = 0.7},
      .sequence_length = 512,
      .train = {.steps = 10,
                .sequences_per_batch = 8,
                .lr = 4.2e-4,
                .warmup_steps = 5,
                .min_lr_factor = 0,
                .load_balance_coeff = 0.001},
  };
}

/// Has DeepSeek-V3's features at a size for a GPU: heads of 64 + 32 and 64
/// columns, a dense layer four times and an expert half as wide as the model,
/// compressed queries and rows of half and a quarter of its width. The rates
/// fall with the size; a sweep (`isoloss study rates`) finds better ones. The
/// host looks at tensors, which takes many times a GPU's step, so that it does
/// so less often.
Preset Dsv3ForGpu(std::string name, size_t dim, size_t layers, size_t experts,
                  size_t top_k, size_t vocabulary, size_t sequence_length,
                  double rate) {
  constexpr size_t kHeadWidth = 64;
  Preset preset = {
      .name = std::move(name),
      .model = {.vocab_size = vocabulary,
                .dim = dim,
                .n_layers = layers,
                .n_dense_layers = 1,
                .n_heads = dim / kHeadWidth,
                .q_lora_rank = dim / 2,
                .kv_lora_rank = dim / 4,
                .qk_nope_head_dim = kHeadWidth,
                .qk_rope_head_dim = kHeadWidth / 2,
                .v_head_dim = kHeadWidth,
                .dense_hidden_dim = 4 * dim,
                .moe_hidden_dim = dim / 2,
                .num_experts = experts,
                .num_shared_experts = 1,
                .top_k = top_k},
      .sequence_length = sequence_length,
      .train = {.steps = 5000,
                .sequences_per_batch = 16,
                .lr = rate,
                .warmup_steps = 500,
                .min_lr_factor = 0,
                .load_balance_coeff = 0.003},
  };
  preset.log.statistics_every = preset.log.digests_every = 1000;
  return preset;
}

/// Takes 89 GiB by EstimatedBytes with whole batches and 56 GiB with halves,
/// which leaves room on a GPU of 80 GB. The dispatch units allow quarters, with
/// the same bits.
Preset Dsv3Billion() {
  Preset preset = Dsv3ForGpu("dsv3-1b", 1024, 16, 36, 6, 32768, 2048, 4e-4);
  preset.parallel.dispatch_units = 4;
  preset.parallel.micro_batches = 2;
  return preset;
}

}  // namespace

std::span<const Preset> AllPresets() {
  static const Preset kPresets[] = {
      Dsv3Nano(),
      Dsv3Small(),
      TorchtitanDebug(),
      Dsv3TopologyOf671b(),
      Dsv3TopologyOf16b(),
      Dsv3LayerOf16b(),
      Dsv3ForGpu("dsv3-30m", 384, 6, 16, 4, 8192, 512, 1e-3),
      Dsv3ForGpu("dsv3-100m", 512, 9, 24, 4, 8192, 1024, 8e-4),
      Dsv3ForGpu("dsv3-300m", 768, 12, 24, 4, 16384, 1024, 6e-4),
      Dsv3Billion()};
  return kPresets;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : AllPresets()) names.push_back(preset.name);
  return names;
}

const Preset& PresetByName(std::string_view name) {
  for (const Preset& preset : AllPresets()) {
    if (preset.name == name) return preset;
  }
  const std::vector<std::string> names = PresetNames();
  ThrowError(ErrorKind::kConfig, "unknown preset `{}`. Known presets: {}.{}",
             name, fmt::join(names, ", "), DidYouMean(name, names));
}

}  // namespace isoloss::train
