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
  TuningConfig tuning;
  ScaledTuningConfig scaled_tuning;
  /// Holds `data` with variables expanded and with paths that are valid in any
  /// folder.
  corpus::Source corpus_source;

  /// Returns the whole experiment, with defaults and presets written out, as
  /// TOML that parses back to the same experiment.
  std::string ResolvedToml() const;
  /// Returns ResolvedToml without train.seeds. It is thus the same for each of
  /// the runs, whichever seeds are trained.
  std::string TomlWithoutSeeds() const;
  /// Returns what two runs must have in common, besides seed, arm and corpus,
  /// to be compared. The text has one "section.key = value" a line, sorted:
  /// data.source, and the keys of runlog::IsOfConfig that differ from their
  /// defaults. A preset counts as the values that it stands for. A key that is
  /// added later does not change the text while it has its default, so no
  /// default may ever change.
  std::string ConfigText() const;
  /// Returns the log that routing.replay names for a seed.
  std::filesystem::path ReplayPath(uint64_t seed) const;
};

/// Returns the text of Experiment::ConfigText, from ResolvedToml of an
/// experiment and of an experiment whose keys all have their defaults.
std::string ChangedConfig(const std::string& resolved,
                          const std::string& resolved_defaults);

/// The caller adds these values to an experiment file.
struct ExperimentInputs {
  /// These folders replace ${NAME} in data.paths.
  std::map<std::string, std::string> variables;
  /// Each override is "section.key=value"; they are applied in order. The value
  /// is TOML; a bare word that is no TOML (mxfp8_rceil) is a string.
  std::vector<std::string> overrides;
};

/// Reads an experiment file.
/// Errors   IoError if it can't be read; ConfigError for the first broken rule:
///          syntax, unknown key, wrong type, value out of range, a model that
///          breaks a rule. Messages start with file:line or "--set key=value".
Experiment LoadExperiment(const std::filesystem::path& path,
                          const ExperimentInputs& inputs = {});

/// Does the same as LoadExperiment; `text` is the content of the file `path`.
Experiment ParseExperiment(std::string_view text,
                           const std::filesystem::path& path,
                           const ExperimentInputs& inputs = {});

/// Returns the number of trained values of a model.
double EstimatedParameters(const model::ModelConfig& config);

/// Returns about how many rows of tensor statistics a log has, one for each
/// tensor in each chosen step; 0 if patterns choose the tensors.
double EstimatedTensorRows(const Experiment& experiment);

/// Returns the least memory that one run needs, in bytes: weights, gradients
/// and moments, and the activations kept for the backward pass, FP32; rows
/// between ranks; the log's widest columns.
double EstimatedBytes(const Experiment& experiment);

/// Reads the tokens that [data] names. Errors   as corpus::LoadCorpus.
corpus::Corpus LoadCorpusOf(const Experiment& experiment);

}  // namespace isoloss::train
