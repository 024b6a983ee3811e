// Is what studies share that write what they found into their experiment's
// file.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/campaign/experiment_source.h"
#include "isoloss/runlog/tuning.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies {

/// Seeds on which such a study trains by default.
inline constexpr size_t kOwnSeeds = runlog::kLeastSweepSeeds;

/// Holds the arguments of such a study.
struct WritingArguments {
  campaign::ExperimentSource source = {};
  size_t seeds = kOwnSeeds;
  bool write = false;

  /// Returns EXPERIMENT, --seeds and --write, with the help of the latter two.
  std::vector<Option> Options(const char* of_seeds, const char* of_write);
  /// Errors   as ExperimentSource::Load; ConfigError that names `study` if
  ///          --write is given with overrides, which the file would not have.
  train::Experiment Load(const std::string& study) const;
};

/// Returns the experiment with the first arm alone and `count` seeds that it
/// does not train. Only losses are logged, and [gate] and [tuning] are empty.
train::Experiment OnSeedsOfItsOwn(train::Experiment experiment, size_t count);

/// Returns TOML without the tables of these headings, such as "[tuning]".
/// Comments right above the next heading, or at the end, stay.
std::string WithoutTables(const std::string& toml,
                          const std::vector<std::string>& headings);

/// Returns TOML with `table` at its end.
std::string WithTable(std::string toml, const std::string& table);

/// Writes the whole file or leaves it as it is. Nothing may differ from the
/// file that is there but [tuning], [tuning.scaled], gate.control and `arms`.
/// Errors   IoError; ConfigError if more differs or `toml` is no experiment.
void WriteExperiment(const std::string& toml, const std::filesystem::path& file,
                     const std::vector<std::string>& arms = {});

}  // namespace isoloss::studies
