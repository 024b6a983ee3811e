// An experiment that trains in a tenth of a second.
#pragma once

#include <filesystem>
#include <fstream>

#include "isoloss/campaign/experiment_source.h"

namespace isoloss::campaign {

inline constexpr const char* kTinyExperiment = R"(name = "tiny"
[model]
vocab_size = 11
dim = 24
n_layers = 1
n_dense_layers = 1
n_heads = 2
kv_lora_rank = 9
qk_nope_head_dim = 6
qk_rope_head_dim = 4
v_head_dim = 7
dense_hidden_dim = 41
moe_hidden_dim = 21
num_experts = 4
top_k = 2
[data]
source = "synthetic"
sequence_length = 19
noise_levels = 4
tokens = 4000
[train]
steps = 8
sequences_per_batch = 3
seeds = [1, 2]
warmup_steps = 4
[log]
eval_every = 4
eval_sequences = 8
[parallel]
workers = 1
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
)";

/// Of a file in `folder`, with `overrides`.
inline train::Experiment TinyExperiment(
    const std::filesystem::path& folder,
    const std::vector<std::string>& overrides = {}) {
  const std::filesystem::path file = folder / "tiny.toml";
  std::ofstream(file) << kTinyExperiment;
  return ExperimentSource{file.string(), overrides}.Load();
}

}  // namespace isoloss::campaign
