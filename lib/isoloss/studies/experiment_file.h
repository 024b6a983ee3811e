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

/// Is a part of a TOML text: the keys of one table, or what is before the first
/// heading or after the last line (no heading).
struct TableText {
  std::string heading = {};  ///< such as "[tuning]"
  std::string above = {};    ///< the comments right above it
  std::string lines = {};  ///< the heading and all lines up to the next `above`
};

/// Divides a text. The parts' `above` and `lines`, in order, are the text.
std::vector<TableText> TablesOf(const std::string& toml);
std::string TextOf(const std::vector<TableText>& tables);

/// Returns TOML with `table` in place of the table of this heading, under the
/// comments above it, or at the end if there is none. "" takes the table and
/// the comments away.
std::string WithTable(const std::string& toml, const std::string& heading,
                      const std::string& table);

/// Returns the experiment that `toml` would make of the file.
/// Errors   ConfigError if `toml` is no experiment, or differs from the file
///          in more than [tuning], [tuning.scaled], gate.control and `arms`.
train::Experiment ParseRewrite(const std::string& toml,
                               const std::filesystem::path& file,
                               const std::vector<std::string>& arms = {});

}  // namespace isoloss::studies
