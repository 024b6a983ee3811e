// The experiment file: strict TOML, checked completely before anything runs.
//
//   name = "mxfp8_vs_bf16"
//   [model]
//   preset = "dsv3-nano"
//   [data]
//   source = "files"
//   paths = ["${EIGEN3_INCLUDE_DIR}/Eigen"]
//   [train]
//   steps = 300
//   [arms.bf16]
//   recipe = "bf16"
//   [arms.mxfp8]
//   recipe = "mxfp8_rceil"
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/corpus/corpus.h"
#include "isoloss/corpus/source.h"
#include "isoloss/model/config.h"
#include "isoloss/train/config.h"

namespace isoloss::train {

struct Experiment {
  std::filesystem::path path;  ///< of the file, as given
  std::string name;
  model::ModelConfig model;
  DataConfig data;
  TrainConfig train;
  ParallelConfig parallel;
  RoutingConfig routing;
  std::vector<Arm> arms;  ///< in the order of the file; the first: baseline
  LogConfig log;
  GateConfig gate;
  /// `data` with variables expanded and paths that hold from anywhere.
  corpus::Source corpus_source;

  /// The whole experiment, defaults and presets written out, as TOML that
  /// parses back to the same.
  std::string ResolvedToml() const;
  /// As ResolvedToml, but without train.seeds: the same for each of its runs,
  /// whichever others are trained.
  std::string TomlWithoutSeeds() const;
  /// What two runs must have in common besides seed, arm and corpus to be
  /// compared: the keys of IsOfConfig that differ from their defaults, and
  /// data.source, sorted, one "section.key = value" a line. A preset counts as
  /// the values it stands for. A key that is added later leaves the text as it
  /// is while it has its default; so no default may ever change.
  std::string ConfigText() const;
  /// The log that routing.replay names for a seed.
  std::filesystem::path ReplayPath(uint64_t seed) const;
};

/// Whether ConfigText covers a "section.key": model, data without paths (the
/// corpus digest stands for them), train without seeds (each run has its own),
/// evaluations, and of [parallel] and [routing] what all runs' bits depend on.
/// Left out are the name, the gate, what else is logged, how to execute a run,
/// and what arms are made to differ in: their recipes and exchanges.
bool IsOfConfig(std::string_view key);

/// The text of Experiment::ConfigText, from ResolvedToml of an experiment and
/// of one whose keys all have their defaults.
std::string ChangedConfig(const std::string& resolved,
                          const std::string& resolved_defaults);

/// The caller adds these values to an experiment file.
struct ExperimentInputs {
  /// Folders for ${NAME} in data.paths.
  std::map<std::string, std::string> variables;
  /// "section.key=value", applied in order. The value is TOML; a bare word that
  /// is not (mxfp8_rceil) is a string.
  std::vector<std::string> overrides;
};

/// Reads an experiment file.
/// Errors   IoError if it can't be read; ConfigError for the first broken rule:
///          syntax, unknown key, wrong type, value out of range, a model that
///          breaks a rule. Messages start with file:line or "--set key=value".
Experiment LoadExperiment(const std::filesystem::path& path,
                          const ExperimentInputs& inputs = {});

/// As LoadExperiment; `text` is the content of the file `path`.
Experiment ParseExperiment(std::string_view text,
                           const std::filesystem::path& path,
                           const ExperimentInputs& inputs = {});

/// Returns the number of trained values of a model.
double EstimatedParameters(const model::ModelConfig& config);

/// Rows of tensor statistics in a log, one for each tensor in each chosen step,
/// about; 0 if patterns choose the tensors.
double EstimatedTensorRows(const Experiment& experiment);

/// Memory that one run needs at least, in bytes: weights, gradients and
/// moments, and the activations kept for the backward pass, FP32; rows between
/// ranks; the log's widest columns.
double EstimatedBytes(const Experiment& experiment);

/// Loads the tokens that [data] names. Errors   as corpus::LoadCorpus.
corpus::Corpus LoadCorpusOf(const Experiment& experiment);

}  // namespace isoloss::train
