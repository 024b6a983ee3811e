// The sections of an experiment file, as plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/optim/schedule.h"

namespace isoloss::train {

/// [data]. Which of the keys below `held_out_share` apply depends on `source`;
/// corpus::Source documents them.
struct DataConfig {
  std::string source;  ///< "files", "tokens" or "synthetic"
  size_t sequence_length = 128;
  double held_out_share = 0.1;
  /// files, tokens: as written, relative to the experiment file, with ${...}.
  std::vector<std::string> paths;
  std::vector<std::string> include;  ///< files
  int token_bits = 16;               ///< tokens
  int order = 1;                     ///< synthetic
  size_t noise_levels = 8;           ///< synthetic
  size_t tokens = 1'000'000;         ///< synthetic
  uint64_t seed = 0;                 ///< synthetic
};

/// [train]. One optimizer step is one batch of sequences_per_batch *
/// data.sequence_length tokens. Formulas: docs/model.md, section 11.
struct TrainConfig {
  int64_t steps = 300;
  size_t sequences_per_batch = 8;
  std::vector<uint64_t> seeds = {1, 2, 3, 4};
  double lr = 1e-3;
  int64_t warmup_steps = 100;
  /// Share of the steps that decay; without a value all after the warm-up.
  std::optional<double> decay_ratio = std::nullopt;
  optim::DecayShape decay_type = optim::DecayShape::kLinear;
  double min_lr_factor = 0.1;
  double clip_norm = 1.0;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  /// Rate of the expert-bias update; 0 switches it off. 0.001 without warm-up
  /// was seen to collapse small models within 3 steps.
  double load_balance_coeff = 0.01;
};

/// [parallel]: how to execute; no bit of a result depends on it.
struct ParallelConfig {
  int workers = 0;  ///< threads in all; 0: one per available processor
};

/// [arms.<name>].
struct Arm {
  std::string name = {};
  std::string recipe = {};
  /// Replace the recipe's patterns if given (precision::SiteMatches).
  std::optional<std::vector<std::string>> include = {};
  std::optional<std::vector<std::string>> exclude = {};
};

/// [log].
struct LogConfig {
  int64_t eval_every = 50;  ///< steps between evaluations
  size_t eval_sequences = 32;
};

/// [gate].
struct GateConfig {
  /// Policy file, relative to the experiment's; "": the gate's defaults. What
  /// may stand in it is the judgement side's business.
  std::string policy;
};

}  // namespace isoloss::train
