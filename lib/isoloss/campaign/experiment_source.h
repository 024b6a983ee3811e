// Which experiment, with what overridden, and where its results go.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/train/experiment.h"

namespace isoloss::campaign {

struct ExperimentSource {
  std::string file;
  /// "section.key=value" each.
  std::vector<std::string> overrides = {};

  /// Errors   as train::LoadExperiment.
  train::Experiment Load() const;
};

/// `out`, or runs/<name of the experiment> if that is empty.
std::filesystem::path ResultsFolder(const train::Experiment& experiment,
                                    const std::filesystem::path& out);

/// The experiment with other seeds: "" for its own, a list such as "1,2,9", or
/// "+4" for four more, behind the largest that it or ResultsFolder(out) has.
/// Errors   as ExperimentSource::Load; ConfigError if `seeds` has no such form.
train::Experiment LoadWithSeeds(const ExperimentSource& source,
                                const std::string& seeds,
                                const std::filesystem::path& out);

}  // namespace isoloss::campaign
