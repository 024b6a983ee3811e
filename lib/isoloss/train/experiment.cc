#include "isoloss/train/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/precision/recipe_file.h"
#include "isoloss/runlog/recording.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/tuning.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/experiment_arms.h"
#include "isoloss/train/experiment_corpus.h"
#include "isoloss/train/experiment_keys.h"
#include "isoloss/train/experiment_sections.h"
#include "isoloss/train/presets.h"

namespace isoloss::train {
namespace {

using config::Reader;
using config::Writer;

/// Reads a section that depends on no key of another section.
template <typename Section>
void ReadSection(Reader fields, Section& section) {
  Visit(fields, section);
  fields.RejectUnknown();
}

void ReadModel(Reader fields, Experiment& experiment) {
  std::string preset_name;
  fields.OneOf("preset", preset_name, PresetNames());
  if (!preset_name.empty()) {
    const Preset& preset = PresetByName(preset_name);
    experiment.model = preset.model;
    experiment.data.sequence_length = preset.sequence_length;
    experiment.train = preset.train;
    experiment.parallel = preset.parallel;
    experiment.log = preset.log;
  }
  Visit(fields, experiment.model);
  fields.RejectUnknown();
}

void ReadData(Reader fields, const ExperimentInputs& inputs,
              Experiment& experiment) {
  fields.Require("source",
                 fmt::format("Give one of {}.", fmt::join(kSources, ", ")));
  Visit(fields, experiment.data);
  fields.RejectUnknown();
  experiment.corpus_source = MakeSource(experiment, fields, inputs.variables);
}

void ReadRouting(Reader fields, RoutingConfig& routing) {
  Visit(fields, routing);
  const bool replays = routing.mode == RoutingMode::kReplay;
  if (!replays && fields.Has("replay")) {
    fields.Fail("replay",
                "is given, but only mode = \"replay\" reads a log. Set the "
                "mode or leave the key out.");
  }
  fields.RejectUnknown();
  if (!replays) return;
  constexpr std::string_view kRemedy =
      "Give the path of a run log that was made with log.routing = true.";
  fields.Require("replay", kRemedy);
  if (routing.replay.empty()) {
    fields.Fail("replay", fmt::format("is empty. {}", kRemedy));
  }
}

/// Fails with the value of `key`, an integer of `fields`, unless `holds`.
void RequireRule(const Reader& fields, bool holds, std::string_view key,
                 size_t value, const std::string& rule) {
  if (!holds) fields.Fail(key, fmt::format("is {}, but {}", value, rule));
}

/// Throws errors with the place of the key that breaks a rule.
void CheckModel(const Reader& fields, const model::ModelConfig& config) {
  model::Validate(config, [&](std::string_view key, const std::string& rule) {
    fields.Fail(key, rule);
  });
}

/// Requires a mesh that can carry the model's experts. `fields` is [parallel].
void CheckMesh(const Reader& fields, Experiment& experiment) {
  expert_parallel::Topology& mesh = experiment.parallel.mesh;
  RequireRule(fields, mesh.ranks % mesh.replicas == 0, "expert_data_parallel",
              mesh.replicas,
              fmt::format("must divide parallel.ranks = {}: each copy of the "
                          "experts takes as many ranks. Correct either.",
                          mesh.ranks));
  const size_t degree = mesh.group_ranks();
  // A model without experts fits every mesh.
  mesh.experts = experiment.model.n_moe_layers() > 0
                     ? experiment.model.num_experts
                     : degree;
  RequireRule(fields, mesh.experts % degree == 0, "ranks", mesh.ranks,
              fmt::format("ranks / expert_data_parallel = {} must divide "
                          "model.num_experts = {}: each rank holds as many "
                          "experts. Choose other ranks.",
                          degree, mesh.experts));
  RequireRule(
      fields,
      mesh.ranks_per_node >= degree || degree % mesh.ranks_per_node == 0,
      "ranks_per_node", mesh.ranks_per_node,
      fmt::format("must divide ranks / expert_data_parallel = {} or be at "
                  "least that: a node never holds ranks of two copies. "
                  "Correct either.",
                  degree));
  expert_parallel::Validate(mesh, fields.Where({}).c_str());
}

/// Requires a mesh that can share out the batch. `fields` is [parallel].
void CheckShares(const Reader& fields, const Experiment& experiment) {
  const expert_parallel::Topology& mesh = experiment.parallel.mesh;
  const TrainConfig& train = experiment.train;
  const size_t tokens =
      train.sequences_per_batch * experiment.data.sequence_length;
  RequireRule(fields, mesh.ranks <= tokens, "ranks", mesh.ranks,
              fmt::format("a batch has train.sequences_per_batch x "
                          "data.sequence_length = {} tokens and each rank "
                          "needs one. Lower ranks.",
                          tokens));
  const size_t units = experiment.parallel.dispatch_units;
  RequireRule(fields, units % mesh.replicas == 0, "dispatch_units", units,
              fmt::format("must be a multiple of expert_data_parallel = {}: "
                          "each copy of the experts takes whole units. Correct "
                          "either.",
                          mesh.replicas));
  RequireRule(fields, train.sequences_per_batch % units == 0, "dispatch_units",
              units,
              fmt::format("must divide train.sequences_per_batch = {}. Correct "
                          "either.",
                          train.sequences_per_batch));
  RequireRule(fields, units % mesh.ranks == 0 || mesh.ranks % units == 0,
              "dispatch_units", units,
              fmt::format("must divide parallel.ranks = {} or be a multiple of "
                          "it: a rank owns a part of one unit, or whole ones. "
                          "Correct either.",
                          mesh.ranks));
}

/// A log of an experiment has this many values of one kind.
struct LoggedValues {
  double ids;      ///< of experts
  double columns;  ///< per expert or rank
  double scale_bytes;
};

LoggedValues CountLoggedValues(const Experiment& experiment) {
  const auto real = [](auto value) { return static_cast<double>(value); };
  const model::ModelConfig& model = experiment.model;
  const double steps = real(experiment.train.steps);
  const double layers = real(model.n_moe_layers());
  return {.ids = steps * layers * real(model.top_k) *
                 real(experiment.train.sequences_per_batch) *
                 real(experiment.data.sequence_length),
          .columns = steps * std::max(layers * real(model.num_experts),
                                      real(experiment.parallel.mesh.ranks)),
          .scale_bytes = EstimatedTensorRows(experiment) *
                         real(runlog::TensorValuesPerStep(1))};
}

void CheckLoggedValues(const Reader& log, const Experiment& experiment,
                       const LoggedValues& values) {
  const auto limit = static_cast<double>(runlog::kMaxValues);
  if (experiment.log.routing && values.ids > limit) {
    log.Fail("routing",
             fmt::format("is true, but the {:.3g} expert ids of all steps are "
                         "more than the {:.3g} values that a log may hold of "
                         "one kind. Train for fewer steps or switch it off.",
                         values.ids, limit));
  }
  if (values.columns > limit) {
    ThrowError(ErrorKind::kConfig,
               "{}: train.steps = {} give a log of {:.3g} values of one kind "
               "(per expert or rank), but it may hold {:.3g}. Train for fewer "
               "steps.",
               experiment.path.string(), experiment.train.steps, values.columns,
               limit);
  }
  if (values.scale_bytes > limit) {
    log.Fail("statistics_every",
             fmt::format("and log.statistics_first give some {:.3g} values of "
                         "/tensors/e8m0_histogram, but a log may hold {:.3g} "
                         "of one kind. Choose fewer steps or tensors.",
                         values.scale_bytes, limit));
  }
}

/// Requires a log whose values a reader can take.
void CheckLogSize(const Reader& log, const Experiment& experiment) {
  const auto real = [](auto value) { return static_cast<double>(value); };
  const LoggedValues values = CountLoggedValues(experiment);
  CheckLoggedValues(log, experiment, values);
  // The log holds both orientations' histograms, the statistics and a digest of
  // each tensor.
  const double tensor_bytes =
      2 * values.scale_bytes * sizeof(int32_t) +
      EstimatedTensorRows(experiment) *
          real(sizeof(double) * (runlog::kTensorStatisticCount + 1));
  const double bytes =
      tensor_bytes + 2 * values.columns * sizeof(int64_t) +
      (experiment.log.routing ? values.ids * sizeof(int32_t) : 0);
  const double most = real(hdf5::ReadLimit());
  if (bytes <= most) return;
  ThrowError(ErrorKind::kConfig,
             "{}: [log] and train.steps = {} give a log of some {:.3g} MiB of "
             "values, but it may hold {:.3g}. Train for fewer steps, log less "
             "(log.statistics_every, log.routing), or set ISOLOSS_MEMORY_MIB "
             "to more.",
             experiment.path.string(), experiment.train.steps, bytes / 0x1p20,
             most / 0x1p20);
}

void CheckName(const Reader& top, const std::string& name) {
  top.Require("name", "Results are filed under it.");
  if (IsPlainName(name, true)) return;
  top.Fail("name",
           fmt::format("is \"{}\", but must have 1 to 100 letters, digits, "
                       "`_`, `-` or `.` and begin with a letter, a digit or "
                       "`_`. Results are filed under it.",
                       name));
}

void CheckLooks(const Reader& gate, const Experiment& experiment) {
  const std::vector<uint64_t>& looks = experiment.gate.looks;
  if (looks.empty()) return;
  constexpr uint64_t kMostPairs = 9999;
  constexpr size_t kMostLooks = 100;
  if (!std::ranges::is_sorted(looks) || looks.front() < 2 ||
      looks.back() > kMostPairs || looks.size() > kMostLooks) {
    gate.Fail("looks",
              fmt::format("is [{}], but it must be {} numbers of seed "
                          "pairs or fewer that ascend from 2 to {}. "
                          "Write for example [6, 12, 18].",
                          fmt::join(looks, ", "), kMostLooks, kMostPairs));
  }
}

void CheckTuning(const Reader& fields, const TuningConfig& tuning) {
  const size_t optima = tuning.seed_optima.size();
  if (runlog::IsSweep(tuning.rates, tuning.held_out) &&
      tuning.rates.empty() == tuning.configuration.empty() &&
      (optima == 0 || optima == tuning.seeds.size())) {
    return;
  }
  ThrowError(
      ErrorKind::kConfig,
      "{} has {} rates and {} held-out losses, but each rate, in "
      "ascending order, must have a loss, `configuration` the digest of the "
      "sweep's runs, and `seed_optima`, if given, a rate for each seed. Let "
      "`isoloss study rates` write the table.",
      fields.Where({"rates"}), tuning.rates.size(), tuning.held_out.size());
}

void CheckScaledTuning(const Reader& fields, const ScaledTuningConfig& scaled) {
  CheckTuning(fields, scaled.sweep);
  if (scaled.parameters.has_value() != scaled.sweep.rates.empty()) return;
  fields.Fail("parameters",
              "must be given with `rates`, and not without. Let `isoloss study "
              "rates --parameters N --write` write the table.");
}

/// Refuses sizes that no machine of this tool's users can hold: they are
/// mistakes.
void CheckMemory(const Experiment& experiment) {
  constexpr double kLimitTib = 1;
  const double tib = EstimatedBytes(experiment) / 0x1p40;
  if (tib <= kLimitTib) return;
  ThrowError(ErrorKind::kConfig,
             "{}: the model and a batch of {} x {} tokens need at least {:.3g} "
             "TiB, but a run may use {} TiB. Lower the sizes of [model], "
             "train.sequences_per_batch or data.sequence_length.",
             experiment.path.string(), experiment.train.sequences_per_batch,
             experiment.data.sequence_length, tib, kLimitTib);
}

template <typename Section>
void WriteSection(Writer& writer, std::string_view name, Section section) {
  writer.Section(name);
  Visit(writer, section);
}

/// Returns the section with the weight site of the exchange written out.
template <typename Section>
Section WithWeightSite(Section section) {
  section.exchange.weight_site = section.exchange.Resolved().weight_site;
  return section;
}

void WriteExperiment(Writer& writer, const Experiment& experiment) {
  writer.Text("name", experiment.name);
  WriteSection(writer, "model", experiment.model);
  WriteSection(writer, "data", experiment.data);
  WriteSection(writer, "train", experiment.train);
  WriteSection(writer, "log", experiment.log);
  WriteSection(writer, "parallel", WithWeightSite(experiment.parallel));
  WriteSection(writer, "routing", experiment.routing);
  for (const Arm& arm : experiment.arms) {
    WriteSection(writer, "arms." + arm.name, WithWeightSite(arm));
    writer.Tables("then", arm.then);
  }
  WriteSection(writer, "gate", experiment.gate);
  if (!experiment.tuning.rates.empty()) {
    WriteSection(writer, "tuning", experiment.tuning);
  }
  if (experiment.scaled_tuning.parameters) {
    WriteSection(writer, "tuning.scaled", experiment.scaled_tuning);
  }
}

/// Returns the recipes of arms that are not registered, each recipe once.
std::string OwnRecipes(const Experiment& experiment) {
  std::map<std::string, std::string> texts;
  const auto add = [&texts](const std::optional<precision::Recipe>& recipe) {
    if (!recipe) return;
    const std::string section = "recipes." + recipe->name;
    texts[section] = "\n" + precision::RecipeText(*recipe, section);
  };
  for (const Arm& arm : experiment.arms) {
    add(arm.own_recipe);
    for (const LaterRecipe& later : arm.then) add(later.own_recipe);
  }
  std::string all;
  for (const auto& [section, text] : texts) all += text;
  return all;
}

/// Refuses a dump at a step that does not exist, which would be missed only at
/// the end.
void CheckDumpSteps(const Reader& log, const Experiment& experiment) {
  if (experiment.log.dump_tensors.empty()) return;
  const auto steps = static_cast<uint64_t>(experiment.train.steps);
  for (const uint64_t step : experiment.log.dump_steps) {
    if (step >= 1 && step <= steps) continue;
    log.Fail("dump_steps",
             fmt::format("holds {}, but the run has steps 1 to {}. Name one of "
                         "them.",
                         step, steps));
  }
}

}  // namespace

std::string Experiment::ResolvedToml() const {
  Writer writer;
  WriteExperiment(writer, *this);
  return writer.text() + OwnRecipes(*this);
}

std::string Experiment::TomlWithoutSeeds() const {
  Experiment any = *this;
  any.train.seeds.clear();
  return any.ResolvedToml();
}

std::string Experiment::ConfigText() const {
  Experiment plain;
  plain.data.source = data.source;  // for the defaults of its keys
  return ChangedConfig(ResolvedToml(), plain.ResolvedToml());
}

std::string ChangedConfig(const std::string& resolved,
                          const std::string& resolved_defaults) {
  const auto defaults = runlog::KeysOf(resolved_defaults);
  std::string text;
  for (const auto& [key, value] : runlog::KeysOf(resolved)) {
    const auto found = defaults.find(key);
    const bool is_default = found != defaults.end() && found->second == value;
    if (runlog::IsOfConfig(key) && (!is_default || key == "data.source")) {
      text += fmt::format("{} = {}\n", key, value);
    }
  }
  return text;
}

std::filesystem::path Experiment::ReplayPath(uint64_t seed) const {
  constexpr std::string_view kSeed = "{seed}";
  std::string file = routing.replay;
  for (size_t place = file.find(kSeed); place != std::string::npos;
       place = file.find(kSeed, place)) {
    file.replace(place, kSeed.size(), fmt::to_string(seed));
  }
  return (path.parent_path() / file).lexically_normal();
}

Experiment ParseExperiment(std::string_view text,
                           const std::filesystem::path& path,
                           const ExperimentInputs& inputs) {
  config::Document document(text, path.string());
  document.SetKnownKeys(ExperimentKeyNames());
  for (const std::string& text_override : inputs.overrides) {
    document.Override(text_override);
  }

  Experiment experiment;
  experiment.path = path;
  Reader top(document);
  top.Text("name", experiment.name);
  const Reader model = top.Section("model");
  const Reader data = top.Section("data");
  const Reader train = top.Section("train");
  const Reader parallel = top.Section("parallel");
  const Reader routing = top.Section("routing");
  const Reader recipes = top.Section("recipes");
  Reader arms = top.Section("arms");
  const Reader log = top.Section("log");
  const Reader gate = top.Section("gate");
  Reader tuning = top.Section("tuning");
  const Reader scaled_tuning = tuning.Section("scaled");
  // This check comes first, so that a misspelt table is not reported as one
  // that lacks its keys.
  top.RejectUnknown();

  CheckName(top, experiment.name);
  ReadModel(model, experiment);
  ReadData(data, inputs, experiment);
  ReadSection(train, experiment.train);
  ReadSection(parallel, experiment.parallel);
  CheckExchange(parallel, experiment.parallel.exchange);
  ReadRouting(routing, experiment.routing);
  experiment.arms =
      ReadArms(arms, experiment.parallel.exchange, ReadRecipes(recipes, path));
  if (experiment.arms.empty()) {
    top.Fail("arms",
             "holds no arm. Add for example [arms.bf16] with recipe = "
             "\"bf16\".");
  }
  ReadSection(log, experiment.log);
  CheckDumpSteps(log, experiment);
  ReadSection(gate, experiment.gate);
  CheckLooks(gate, experiment);
  ReadSection(tuning, experiment.tuning);
  CheckTuning(tuning, experiment.tuning);
  ReadSection(scaled_tuning, experiment.scaled_tuning);
  CheckScaledTuning(scaled_tuning, experiment.scaled_tuning);

  CheckModel(model, experiment.model);
  CheckRecipes(arms, experiment);
  CheckControl(gate, experiment);
  CheckMesh(parallel, experiment);
  CheckShares(parallel, experiment);
  CheckMicroBatches(parallel, experiment);
  CheckLogSize(log, experiment);
  CheckMemory(experiment);
  return experiment;
}

Experiment LoadExperiment(const std::filesystem::path& path,
                          const ExperimentInputs& inputs) {
  const std::string text =
      ReadTextFile(path, "Give the path of an experiment file.");
  return ParseExperiment(text, path, inputs);
}

}  // namespace isoloss::train
