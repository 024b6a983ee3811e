// Declares the sections of an experiment file as plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/expert_parallel/options.h"
#include "isoloss/expert_parallel/topology.h"
#include "isoloss/model/routing_mode.h"
#include "isoloss/optim/schedule.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::train {

/// [data]. Which of the keys below `held_out_share` apply depends on `source`;
/// corpus::Source documents them.
struct DataConfig {
  std::string source;  ///< "files", "tokens" or "synthetic"
  size_t sequence_length = 128;
  double held_out_share = 0.1;
  /// files, tokens: the paths are as written, relative to the experiment file,
  /// with ${...}.
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

using model::RoutingMode;

/// How rows travel to experts and back. Keys exchange, payload,
/// gradient_payload, weight_site, combine_order and expert_padding of
/// [parallel]; an arm may override each.
struct ExchangeConfig {
  expert_parallel::ExchangeOptions options;
  /// The default is "source" for the flat exchange, else "expert_out".
  std::optional<expert_parallel::WeightSite> weight_site = std::nullopt;

  /// Returns `options` with the weight site filled in.
  expert_parallel::ExchangeOptions Resolved() const;
};

/// Writes all options on one line, as keys of [parallel].
std::string DescribeExchange(const expert_parallel::ExchangeOptions& options);

/// [parallel]: the mesh, how rows travel on it, and how all of it is executed.
/// Bits depend on dispatch_units; on the rest of the mesh only if `exchange` is
/// hierarchical; never on how it is executed.
struct ParallelConfig {
  /// ranks, replicas, ranks_per_node; `experts` is the model's.
  expert_parallel::Topology mesh;
  /// Consecutive equal shares of a batch's sequences whose rows an expert lists
  /// apart: its weight gradient is a tree over them, and MX blocks down the
  /// list start anew in each. A multiple of the replicas.
  size_t dispatch_units = 1;
  ExchangeConfig exchange;

  // How to execute it.
  std::string transport = "loop";
  int workers = 0;  ///< threads in all; 0: one per available processor
  double deadline_seconds = 60;  ///< longest wait of one operation
  uint64_t shuffle_seed = 0;     ///< transport "shuffled"
};

/// As the experiment file writes it: "learned", "forced_balance", "replay".
const char* RoutingModeName(RoutingMode mode);

/// [routing]: who chooses the experts.
struct RoutingConfig {
  RoutingMode mode = RoutingMode::kLearned;
  /// kReplay: a run log with log.routing, relative to the experiment file;
  /// "{seed}" stands for the seed.
  std::string replay;
};

/// What an arm's runs may be made to differ in from others of the same recipe
/// (perturbation.h).
enum class Perturb {
  kOneUlp,  ///< every initial weight, by one unit in its last place
};

/// [arms.<name>].
struct Arm {
  std::string name = {};
  std::string recipe = {};
  /// A recipe that is not registered: of [recipes], or of the calling program.
  std::optional<precision::Recipe> own_recipe = {};
  /// Replace the recipe's patterns if given (precision::SiteMatches).
  std::optional<std::vector<std::string>> include = {};
  std::optional<std::vector<std::string>> exclude = {};
  std::optional<Perturb> perturb = {};
  /// The draw selects one of many such perturbations; it counts only with
  /// `perturb`.
  int64_t perturb_draw = 1;
  /// [parallel]'s, with the arm's own keys in their place.
  ExchangeConfig exchange = {};

  /// Trains with a recipe that is not registered.
  void Use(precision::Recipe own) {
    recipe = own.name;
    own_recipe = std::move(own);
  }
  /// Returns the recipe without this arm's patterns. Errors   as
  /// precision::RecipeByName.
  const precision::Recipe& BaseRecipe() const {
    return own_recipe ? *own_recipe : precision::RecipeByName(recipe);
  }
};

/// [log]. Only the evaluations are part of a run's configuration; what else is
/// kept, and how, changes no bit.
struct LogConfig {
  int64_t eval_every = 50;  ///< steps between evaluations
  size_t eval_sequences = 32;
  /// Keep every step's expert ids: T * K * MoE layers values a step.
  bool routing = false;
  /// Statistics and digests of tensors: steps 1 to *_first, then every
  /// *_every-th; 0: none.
  int64_t statistics_first = 1;
  int64_t statistics_every = 200;
  int64_t digests_first = 1;
  int64_t digests_every = 200;
  /// Patterns of precision::SiteMatches over "<module>_<tensor>".
  std::vector<std::string> statistics_tensors = {"*"};
  /// These tensors are stored whole, at dump_steps.
  std::vector<std::string> dump_tensors;
  std::vector<uint64_t> dump_steps = {1};
  /// A checkpoint is written every `checkpoint_every` steps (0: none), and
  /// `checkpoint_minutes` after the last one (0: never).
  int64_t checkpoint_every = 0;
  double checkpoint_minutes = 10;
  /// How often the HDF5 file of a live run is built anew.
  double refresh_seconds = 5;
};

/// [gate].
struct GateConfig {
  /// Policy file, relative to the experiment's; "": the gate's defaults. What
  /// may stand in it is the judgement side's business.
  std::string policy;
  /// This replaces the policy's `margin_percent`, unless it is empty.
  std::optional<double> margin_percent = std::nullopt;
  /// Expected standard deviation of a seed pair's difference, in percent of the
  /// baseline's loss. For plans: no verdict depends on it.
  std::optional<double> spread_percent = std::nullopt;
  /// The arm that must come out worse than the baseline, else a verdict on
  /// precision is no PASS.
  std::optional<std::string> control = std::nullopt;
  /// Numbers of seed pairs after which `verify` tests, ascending from 2;
  /// empty: once, after train.seeds.
  std::vector<uint64_t> looks;
};

}  // namespace isoloss::train
