#include "isoloss/train/experiment.h"

#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/text_file.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/presets.h"
#include "isoloss/train/toml_fields.h"

namespace isoloss::train {
namespace {

using model::ModelConfig;
using model::ScoreFunction;
using optim::DecayShape;

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxSize = 1 << 20;
constexpr int64_t kMaxLayers = 1000;
constexpr int64_t kMaxSteps = 10'000'000;
constexpr Interval kUnit = {0, 1};
constexpr Interval kUnitOpenLow = {.low = 0, .high = 1, .low_open = true};
constexpr Interval kUnitOpenHigh = {.low = 0, .high = 1, .high_open = true};
constexpr Interval kUnitOpen = {0, 1, true, true};
/// What keeps a quotient finite must be a normal number in FP32.
constexpr Interval kEpsilon = {1e-30, 1};
constexpr Interval kPositive = {.low = 0, .high = 1e9, .low_open = true};

const std::vector<std::string> kSources = {"files", "tokens", "synthetic"};
constexpr Named<int> kTokenTypes[] = {{"uint16", 16}, {"uint32", 32}};
constexpr Named<ScoreFunction> kScoreFunctions[] = {
    {"sigmoid", ScoreFunction::kSigmoid}, {"softmax", ScoreFunction::kSoftmax}};
constexpr Named<DecayShape> kDecayShapes[] = {{"linear", DecayShape::kLinear},
                                              {"sqrt", DecayShape::kSqrt},
                                              {"cosine", DecayShape::kCosine}};

// What each section holds: read, listed as known, and printed by these.

template <typename Fields>
void Visit(Fields& fields, ModelConfig& model) {
  const auto size = [&](std::string_view key, size_t& value) {
    fields.Integer(key, value, 0, kMaxSize);
  };
  size("vocab_size", model.vocab_size);
  size("dim", model.dim);
  fields.Integer("n_layers", model.n_layers, 0, kMaxLayers);
  fields.Integer("n_dense_layers", model.n_dense_layers, 0, kMaxLayers);
  size("n_heads", model.n_heads);
  size("q_lora_rank", model.q_lora_rank);
  size("kv_lora_rank", model.kv_lora_rank);
  size("qk_nope_head_dim", model.qk_nope_head_dim);
  size("qk_rope_head_dim", model.qk_rope_head_dim);
  size("v_head_dim", model.v_head_dim);
  size("dense_hidden_dim", model.dense_hidden_dim);
  size("moe_hidden_dim", model.moe_hidden_dim);
  size("num_experts", model.num_experts);
  size("num_shared_experts", model.num_shared_experts);
  size("top_k", model.top_k);
  size("num_expert_groups", model.num_expert_groups);
  size("num_limited_groups", model.num_limited_groups);
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
  fields.Seeds("seeds", train.seeds);
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
void Visit(Fields& fields, ParallelConfig& parallel) {
  fields.Integer("workers", parallel.workers, 0, 4096);
}

template <typename Fields>
void Visit(Fields& fields, Arm& arm) {
  static const std::vector<std::string> kRecipes = [] {
    std::vector<std::string> names;
    for (const auto* recipe : precision::AllRecipes()) {
      names.push_back(recipe->name);
    }
    return names;
  }();
  fields.OneOf("recipe", arm.recipe, kRecipes);
  fields.Texts("include", arm.include);
  fields.Texts("exclude", arm.exclude);
}

template <typename Fields>
void Visit(Fields& fields, LogConfig& log) {
  fields.Integer("eval_every", log.eval_every, 1, kMaxSteps);
  fields.Integer("eval_sequences", log.eval_sequences, 1, kMaxSize);
}

template <typename Fields>
void Visit(Fields& fields, GateConfig& gate) {
  fields.Text("policy", gate.policy);
}

/// Reads a section that needs nothing but its own keys.
template <typename Section>
void ReadSection(FieldReader fields, Section& section) {
  Visit(fields, section);
  fields.RejectUnknown();
}

void ReadModel(FieldReader fields, Experiment& experiment) {
  std::string preset_name;
  fields.OneOf("preset", preset_name, PresetNames());
  if (!preset_name.empty()) {
    const Preset& preset = PresetByName(preset_name);
    experiment.model = preset.model;
    experiment.data.sequence_length = preset.sequence_length;
    experiment.train = preset.train;
  }
  Visit(fields, experiment.model);
  fields.RejectUnknown();
}

/// Letters, digits, '_' and '-' (and '.' inside): fit for a file name and a
/// bare key.
bool IsPlainName(std::string_view name, bool dots) {
  const auto plain = [dots](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || (dots && c == '.');
  };
  return !name.empty() && name.size() <= 100 && name.front() != '.' &&
         name.front() != '-' && std::all_of(name.begin(), name.end(), plain);
}

void ReadArms(FieldReader arms, std::vector<Arm>& result) {
  for (const std::string& name : arms.KeysInOrder()) {
    if (!IsPlainName(name, false)) {
      arms.Fail(name,
                "is not a name for files: an arm's must have 1 to 100 "
                "letters, digits, `_` or `-`. Rename the arm.");
    }
    Arm arm{.name = name};
    FieldReader fields = arms.Table(name);
    fields.Require("recipe", "Each arm names the recipe it trains with.");
    Visit(fields, arm);
    fields.RejectUnknown();
    result.push_back(std::move(arm));
  }
}

/// Replaces each ${NAME}; `fields` is [data].
std::string Expand(const std::string& path, const FieldReader& fields,
                   const std::map<std::string, std::string>& variables) {
  std::string expanded;
  size_t begin = 0;
  for (size_t open = path.find("${"); open != std::string::npos;
       open = path.find("${", begin)) {
    const size_t close = path.find('}', open);
    if (close == std::string::npos) {
      fields.Fail("paths", fmt::format("holds \"{}\", but ${{ needs a closing "
                                       "brace. Write ${{NAME}}.",
                                       path));
    }
    const std::string name = path.substr(open + 2, close - open - 2);
    const auto variable = variables.find(name);
    if (variable == variables.end()) {
      std::vector<std::string> known;
      for (const auto& [key, folder] : variables) known.push_back(key);
      fields.Fail(
          "paths",
          fmt::format("uses the unknown variable `{}`. Known "
                      "variables: {}.{}",
                      name,
                      known.empty() ? "none"
                                    : fmt::format("{}", fmt::join(known, ", ")),
                      DidYouMean(name, known)));
    }
    expanded += path.substr(begin, open - begin) + variable->second;
    begin = close + 1;
  }
  return expanded + path.substr(begin);
}

std::vector<std::filesystem::path> ResolvePaths(
    const Experiment& experiment, const FieldReader& fields,
    const std::map<std::string, std::string>& variables) {
  if (experiment.data.paths.empty()) {
    fields.Require("paths", "List the files or folders to train on.");
    fields.Fail("paths", "is empty. List the files or folders to train on.");
  }
  std::vector<std::filesystem::path> paths;
  for (const std::string& path : experiment.data.paths) {
    paths.push_back(
        (experiment.path.parent_path() / Expand(path, fields, variables))
            .lexically_normal());
  }
  return paths;
}

/// Makes the corpus::Source of [data] and checks it against the model.
corpus::Source MakeSource(const Experiment& experiment,
                          const FieldReader& fields,
                          const std::map<std::string, std::string>& variables) {
  const DataConfig& data = experiment.data;
  const size_t vocab_size = experiment.model.vocab_size;
  if (data.source == "synthetic") {
    if (data.noise_levels > vocab_size) {
      fields.Fail("noise_levels",
                  fmt::format("is {}, but must be at most model.vocab_size = "
                              "{}. Correct either.",
                              data.noise_levels, vocab_size));
    }
    return corpus::SyntheticSource{vocab_size, data.order, data.noise_levels,
                                   data.tokens, data.seed};
  }
  auto paths = ResolvePaths(experiment, fields, variables);
  if (data.source == "tokens") {
    return corpus::TokensSource{std::move(paths), data.token_bits, vocab_size};
  }
  if (vocab_size < corpus::kByteVocabulary) {
    fields.Fail("source",
                fmt::format("is \"files\", whose bytes need a vocabulary of "
                            "{}, but model.vocab_size is {}. Raise it.",
                            corpus::kByteVocabulary, vocab_size));
  }
  return corpus::FilesSource{std::move(paths), data.include};
}

void ReadData(FieldReader fields, const ExperimentInputs& inputs,
              Experiment& experiment) {
  fields.Require("source",
                 fmt::format("Give one of {}.", fmt::join(kSources, ", ")));
  Visit(fields, experiment.data);
  fields.RejectUnknown();
  experiment.corpus_source = MakeSource(experiment, fields, inputs.variables);
}

void CheckName(const FieldReader& top, const std::string& name) {
  top.Require("name", "Results are filed under it.");
  if (IsPlainName(name, true)) return;
  top.Fail("name",
           fmt::format("is \"{}\", but must have 1 to 100 letters, digits, "
                       "`_`, `-` or `.` and begin with a letter, a digit or "
                       "`_`. Results are filed under it.",
                       name));
}

/// Sizes that no machine of this tool's users holds are mistakes.
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
void WriteSection(FieldWriter& writer, std::string_view name, Section section) {
  writer.Section(name);
  Visit(writer, section);
}

void WriteConfig(FieldWriter& writer, const Experiment& experiment) {
  WriteSection(writer, "model", experiment.model);
  WriteSection(writer, "data", experiment.data);
  WriteSection(writer, "train", experiment.train);
  WriteSection(writer, "log", experiment.log);
}

}  // namespace

std::string Experiment::ResolvedToml() const {
  FieldWriter writer;
  writer.Text("name", name);
  WriteConfig(writer, *this);
  WriteSection(writer, "parallel", parallel);
  for (const Arm& arm : arms) WriteSection(writer, "arms." + arm.name, arm);
  WriteSection(writer, "gate", gate);
  return writer.text();
}

std::string Experiment::ConfigText() const {
  FieldWriter writer;
  writer.Omit("paths");
  WriteConfig(writer, *this);
  return writer.text();
}

Experiment ParseExperiment(std::string_view text,
                           const std::filesystem::path& path,
                           const ExperimentInputs& inputs) {
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    ThrowError(ErrorKind::kConfig, "{}:{}:{}: {}. Correct the TOML.",
               path.string(), error.source().begin.line,
               error.source().begin.column, error.description());
  }
  Origin origin(path.string());
  for (const std::string& text_override : inputs.overrides) {
    ApplyOverride(text_override, root, origin);
  }

  Experiment experiment;
  experiment.path = path;
  FieldReader top(root, "", origin);
  top.Text("name", experiment.name);
  const FieldReader model = top.Table("model");
  const FieldReader data = top.Table("data");
  const FieldReader train = top.Table("train");
  const FieldReader parallel = top.Table("parallel");
  const FieldReader arms = top.Table("arms");
  const FieldReader log = top.Table("log");
  const FieldReader gate = top.Table("gate");
  // First, lest a misspelt table be reported as one that lacks its keys.
  top.RejectUnknown();

  CheckName(top, experiment.name);
  ReadModel(model, experiment);
  ReadData(data, inputs, experiment);
  ReadSection(train, experiment.train);
  ReadSection(parallel, experiment.parallel);
  ReadArms(arms, experiment.arms);
  if (experiment.arms.empty()) {
    top.Fail("arms",
             "holds no arm. Add for example [arms.bf16] with recipe = "
             "\"bf16\".");
  }
  ReadSection(log, experiment.log);
  ReadSection(gate, experiment.gate);

  model::Validate(experiment.model, (path.string() + ": [model]").c_str());
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
