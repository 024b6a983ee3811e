// Arguments that commands share which read an experiment.
#pragma once

#include <filesystem>
#include <string>

#include "arguments.h"
#include "isoloss/campaign/experiment_source.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::cli {

/// Ends the help of `--arm` of a command that takes all arms, or one.
inline constexpr const char* kAllArmsHelp = " (default: every arm of the file)";
inline constexpr const char* kOneArmHelp =
    " (default: the arm beside the baseline, which is the first; required if "
    "there are several)";

/// Declares the experiment and --set on `app`. Returns the experiment, which
/// most commands require.
Option DeclareExperiment(CLI::App& app, campaign::ExperimentSource& source);

/// Arguments of a command that writes logs.
struct ExperimentArguments : campaign::ExperimentSource {
  std::string out;
  std::string seeds;  ///< "", "+4" or "1,2,9"
  bool dry_run = false;
  bool resume = false;
  bool restart = false;

  void Declare(CLI::App& app);
  /// Errors   as campaign::LoadWithSeeds.
  train::Experiment Load() const {
    return campaign::LoadWithSeeds(*this, seeds, out);
  }
  /// What makes the same command go on with the seeds that `experiment` has:
  /// "--resume", and the list of seeds where +N would add others.
  std::string HowToGoOn(const train::Experiment& experiment) const;
  /// Where results go: --out, else runs/<experiment name>.
  std::filesystem::path Folder(const train::Experiment& experiment) const {
    return campaign::ResultsFolder(experiment, out);
  }
  train::Leftovers leftovers() const;
};

}  // namespace isoloss::cli
