// What a log tells of a run's batches, under the names that programs use.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::foreign {

/// Reads the lines of a log that hold no values of steps.
class SettingsReader {
 public:
  /// Adds the numbers of a line of settings to `run`:
  ///   global_batch_size ............ 128
  ///   ... global batch size 64, sequence length 2048, total steps 1000
  /// None of an evaluation, by its words or by the heading above it.
  void Read(std::string_view line, ForeignRun& run);
  /// "***** Running Evaluation *****": what follows is of no training.
  void ReadHeading(std::string_view line);

 private:
  bool evaluates_ = false;
  size_t indent_ = 0;  ///< of the heading
  /// Lines that say nothing, each digit run as one digit: logs repeat them.
  std::set<std::string> silent_;
};

/// "total steps", "max_iters", ...: names of the step at which a run is to end
/// that mean nothing else.
bool IsPlannedSteps(std::string_view name);
/// Epochs times steps of each, by the settings; no number above 0 if they do
/// not tell it.
double StepsOfEpochs(const ForeignRun& run);

/// Signs that no weight moved: updates that were skipped, updates of norm 0,
/// parameters of one norm throughout.
std::vector<runlog::Told::Idle> IdleOf(const ForeignRun& run);

/// "loss_scale", "amp/grad scale".
bool IsLossScale(std::string_view name);

/// All that the run tells of its batches.
std::vector<runlog::Told::Number> BatchFactsOf(const ForeignRun& run);

}  // namespace isoloss::foreign
