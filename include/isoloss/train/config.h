// Holds the sections of an experiment file as plain data.
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
  /// This share of the steps decays; without a value all steps after the
  /// warm-up do.
  std::optional<double> decay_ratio = std::nullopt;
  optim::DecayShape decay_type = optim::DecayShape::kLinear;
  double min_lr_factor = 0.1;
  double clip_norm = 1.0;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  /// Sets the rate of the expert-bias update; 0 switches it off. A rate of
  /// 0.001 without warm-up was seen to collapse small models within 3 steps.
  double load_balance_coeff = 0.01;
};

using model::RoutingMode;

/// Decides how rows travel to experts and back. Its keys in [parallel] are
/// exchange, payload, gradient_payload, weight_site, combine_order and
/// expert_padding; an arm may override each.
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
/// Bits depend on dispatch_units; they depend on the rest of the mesh only if
/// `exchange` is hierarchical, and never on the execution.
struct ParallelConfig {
  /// ranks, replicas, ranks_per_node; `experts` is the model's.
  expert_parallel::Topology mesh;
  /// A batch's sequences are split into this many consecutive equal shares,
  /// whose rows an expert lists apart. Its weight gradient is a tree over the
  /// shares, and MX blocks down the list start anew in each share. It is a
  /// multiple of the replicas.
  size_t dispatch_units = 1;
  ExchangeConfig exchange;

  // The following keys set how the run is executed.
  std::string transport = "loop";
  std::string on = "cpu";  ///< device::DeviceNames
  /// A step computes its batch in this many consecutive equal shares, one after
  /// the other, so that it needs memory for the activations of one.
  size_t micro_batches = 1;
  /// Says that a step computes its whole batch at once all the same, because
  /// listeners need whole tensors or the batch was changed. No file says it.
  bool whole_batches = false;
  /// Returns how many shares there are.
  size_t shares() const { return whole_batches ? 1 : micro_batches; }
  int workers = 0;  ///< threads in all; 0: one per available processor
  double deadline_seconds = 60;  ///< longest wait of one operation
  uint64_t shuffle_seed = 0;     ///< transport "shuffled"
};

/// Returns the name that the experiment file uses: "learned", "forced_balance",
/// "replay".
const char* RoutingModeName(RoutingMode mode);

/// [routing] says who chooses the experts.
struct RoutingConfig {
  RoutingMode mode = RoutingMode::kLearned;
  /// kReplay reads a run log with log.routing, relative to the experiment file;
  /// "{seed}" stands for the seed.
  std::string replay;
};

/// An arm's runs may differ in this from runs of the same recipe
/// (perturbation.h).
enum class Perturb {
  kOneUlp,  ///< every initial weight, by one unit in its last place
};

/// [[arms.<name>.then]] replaces the arm's recipe in mid-run.
struct LaterRecipe {
  /// The recipe holds after this share of the steps (runlog::LastStepOf).
  double from = 0;
  std::string recipe = {};
  std::optional<precision::Recipe> own_recipe = {};  ///< as those of Arm
  std::optional<std::vector<std::string>> include = {};
  std::optional<std::vector<std::string>> exclude = {};
};

/// [arms.<name>].
struct Arm {
  std::string name = {};
  std::string recipe = {};
  /// This recipe is not registered, but comes from [recipes] or from the
  /// calling program.
  std::optional<precision::Recipe> own_recipe = {};
  /// Both lists replace the recipe's patterns if they are given
  /// (precision::SiteMatches).
  std::optional<std::vector<std::string>> include = {};
  std::optional<std::vector<std::string>> exclude = {};
  std::optional<Perturb> perturb = {};
  /// The draw selects one of many such perturbations; it counts only with
  /// `perturb`.
  int64_t perturb_draw = 1;
  /// The exchange of [parallel], in which the arm's own keys are set.
  ExchangeConfig exchange = {};
  /// The recipes that follow the first one in mid-run, `from` ascending.
  std::vector<LaterRecipe> then = {};

  /// Trains with a recipe that is not registered.
  void Use(precision::Recipe own) {
    recipe = own.name;
    own_recipe = std::move(own);
  }
  /// Returns the first recipe without this arm's patterns. Errors   as
  /// precision::RecipeByName.
  const precision::Recipe& BaseRecipe() const {
    return own_recipe ? *own_recipe : precision::RecipeByName(recipe);
  }
};

/// [log]. Only the evaluations are part of a run's configuration; all further
/// keys change no bit.
struct LogConfig {
  int64_t eval_every = 50;  ///< steps between evaluations
  size_t eval_sequences = 32;
  /// Keeps every step's expert ids: T * K * MoE layers values a step.
  bool routing = false;
  /// Statistics and digests of tensors are logged at steps 1 to *_first, then
  /// at every *_every-th; 0: none.
  int64_t statistics_first = 1;
  int64_t statistics_every = 200;
  int64_t digests_first = 1;
  int64_t digests_every = 200;
  /// These are patterns of precision::SiteMatches over "<module>_<tensor>".
  std::vector<std::string> statistics_tensors = {"*"};
  /// These tensors are stored whole, at dump_steps.
  std::vector<std::string> dump_tensors;
  std::vector<uint64_t> dump_steps = {1};
  /// A checkpoint is written every `checkpoint_every` steps (0: none), and
  /// `checkpoint_minutes` after the previous one (0: never).
  int64_t checkpoint_every = 0;
  double checkpoint_minutes = 10;
  /// The HDF5 file of a live run is built anew after this time.
  double refresh_seconds = 5;
};

/// [tuning] holds what a sweep of learning rates found (studies/rates.cc). No
/// run depends on it; the verdict reads it from the runs' logs.
struct TuningConfig {
  std::vector<double> rates = {};     ///< ascending
  std::vector<double> held_out = {};  ///< nats, mean over seeds; inf: diverged
  std::vector<uint64_t> seeds = {};   ///< of each rate
  std::string configuration = {};     ///< runlog::TuningDigest of its runs
  /// The optimum of each seed alone; empty if nobody knows them.
  std::vector<double> seed_optima = {};
};

/// [tuning.scaled] holds a sweep of the model at another size.
struct ScaledTuningConfig {
  /// The size that the sweep was asked for; empty: there is none.
  std::optional<double> parameters = std::nullopt;
  TuningConfig sweep = {};
};

/// [gate].
struct GateConfig {
  /// Names the policy file, relative to the experiment's; "": the gate's
  /// defaults. The judgement side decides which keys it may have.
  std::string policy;
  /// Replaces the policy's `margin_percent`, unless it is empty.
  std::optional<double> margin_percent = std::nullopt;
  /// The expected standard deviation of a seed pair's difference is in percent
  /// of the baseline's loss. It is used for plans: no verdict depends on it.
  std::optional<double> spread_percent = std::nullopt;
  /// One of the controls must come out worse than the baseline; if none does, a
  /// verdict on precision is no PASS. The mildest arm comes first.
  std::vector<std::string> control = {};
  /// `verify` tests after these numbers of seed pairs, ascending from 2; empty:
  /// once, after train.seeds.
  std::vector<uint64_t> looks;
};

}  // namespace isoloss::train
