// Names an experiment file, its overrides, and the folder of its results.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/train/experiment.h"

namespace isoloss::campaign {

struct ExperimentSource {
  std::string file;
  /// Each override is "section.key=value".
  std::vector<std::string> overrides = {};
  std::string on = {};  ///< overrides parallel.on; empty: the file's

  /// Loads the experiment with its overrides.
  /// Errors   as train::LoadExperiment.
  train::Experiment Load() const;
  /// Does the same as Load; `text` is the content of the file.
  train::Experiment Parse(std::string_view text) const;
};

/// Returns `out`, or runs/<name of the experiment> if `out` is empty.
std::filesystem::path ResultsFolder(const train::Experiment& experiment,
                                    const std::filesystem::path& out);

/// Loads the experiment with other seeds. `seeds` is "" for its own, a list
/// such as "1,2,9", or "+4" for four more. Added seeds follow the largest that
/// the experiment or ResultsFolder(out) has.
/// Errors   as ExperimentSource::Load; ConfigError if `seeds` has no such form.
train::Experiment LoadWithSeeds(const ExperimentSource& source,
                                const std::string& seeds,
                                const std::filesystem::path& out);

}  // namespace isoloss::campaign
