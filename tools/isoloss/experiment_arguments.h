// Declares arguments that commands share if they read an experiment.
#pragma once

#include <filesystem>
#include <string>

#include "arguments.h"
#include "isoloss/campaign/experiment_source.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::cli {

/// The help of `--arm` ends with one of these, for a command that takes all
/// arms or one.
inline constexpr const char* kAllArmsHelp = " (default: every arm of the file)";
inline constexpr const char* kOneArmHelp =
    " (default: the arm beside the baseline, which is the first; required if "
    "there are several)";

/// Declares the experiment and --set on `app`. Returns the option of the
/// experiment, which most commands require.
Option DeclareExperiment(CLI::App& app, campaign::ExperimentSource& source);

/// These are the arguments of a command that writes logs.
struct ExperimentArguments : campaign::ExperimentSource {
  std::string out;
  std::string seeds;  ///< "", "+4" or "1,2,9"
  bool dry_run = false;
  bool resume = false;
  bool restart = false;

  void Declare(CLI::App& app);
  /// Reads the experiment with the seeds of --seeds.
  /// Errors   as campaign::LoadWithSeeds.
  train::Experiment Load() const {
    return campaign::LoadWithSeeds(*this, seeds, out);
  }
  /// Returns the options with which the same command goes on with the seeds of
  /// `experiment`: "--resume", and the list of seeds if +N would add more.
  std::string HowToGoOn(const train::Experiment& experiment) const;
  /// Results go to --out, else to runs/<experiment name>.
  std::filesystem::path Folder(const train::Experiment& experiment) const {
    return campaign::ResultsFolder(experiment, out);
  }
  train::Leftovers leftovers() const;
};

}  // namespace isoloss::cli
