// Returns every key of an experiment file, for hints and for the test of its
// document.
#pragma once

#include <string>
#include <vector>

namespace isoloss::train {

struct ExperimentKey {
  std::string section;  ///< "train"; "" at the top; "arms.NAME" of any arm
  std::string name;
  /// The default as TOML; empty if a file that leaves out the key has none.
  std::string default_value;

  std::string Dotted() const;  ///< "train.steps"
};

/// Returns all keys, in the order of Experiment::ResolvedToml, with their
/// defaults where no preset is given.
std::vector<ExperimentKey> ExperimentKeys();

/// Returns the names of all keys, with dots.
const std::vector<std::string>& ExperimentKeyNames();

}  // namespace isoloss::train
