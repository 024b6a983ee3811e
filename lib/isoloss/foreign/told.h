// Finds what a log tells of a run's batches, under the names that programs use.
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
  /// Settings of an evaluation, known by their words or by the heading above
  /// them, are not added.
  void Read(std::string_view line, ForeignRun& run);
  /// After the heading "***** Running Evaluation *****", no line is of
  /// training.
  void ReadHeading(std::string_view line);

 private:
  bool evaluates_ = false;
  size_t indent_ = 0;  ///< of the heading
  /// Lines that say nothing are kept with each run of digits as one digit,
  /// because logs repeat them.
  std::set<std::string> silent_;
};

/// Returns whether the name means the step at which a run is to end and nothing
/// else: "total steps", "max_iters", ...
bool IsPlannedSteps(std::string_view name);
/// Returns epochs times steps of each epoch, by the settings. The result is not
/// above 0 if they do not tell it.
double StepsOfEpochs(const ForeignRun& run);

/// Returns signs that no weight moved: skipped updates, updates of norm 0, and
/// parameters whose norm never changes.
std::vector<runlog::Told::Idle> IdleOf(const ForeignRun& run);

/// Returns whether a loss scale has this name: "loss_scale", "amp/grad scale".
bool IsLossScale(std::string_view name);

/// Returns all that the run tells of its batches.
std::vector<runlog::Told::Number> BatchFactsOf(const ForeignRun& run);

}  // namespace isoloss::foreign
