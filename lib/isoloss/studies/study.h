// A study: many small experiments that answer one question together, each in a
// folder of its own, of which a later call trains only what is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/run_list.h"
#include "isoloss/compare/pair.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/run_hooks.h"
#include "isoloss/train/runner.h"

namespace isoloss::studies {

/// One experiment of a study.
struct StudyCell {
  std::string name;  ///< of its folder: letters, digits, '.', '-', '_'
  train::Experiment experiment;
  /// What its runs begin with besides; may be empty.
  std::function<train::RunHooks(const train::Run& run)> hooks = {};
  /// What trains runs in place of train::ExecuteRuns, with its contract: it
  /// keeps what is finished, tells the hooks of each step and run, and ends
  /// early once hooks.stop is set. Of the experiment it takes arms, seeds and
  /// steps. Whoever sets it sets result_file and fills in the seconds, too.
  std::function<void(const std::vector<train::Run>& runs,
                     const std::filesystem::path& folder,
                     const train::RunnerHooks& hooks)>
      execute = {};
  /// The file in `folder` that a finished run leaves; empty: its run log.
  std::function<std::filesystem::path(const std::filesystem::path& folder,
                                      const train::Run& run)>
      result_file = {};
  double seconds = 0;  ///< that all of its runs are expected to take
};

struct Study {
  std::string kind;  ///< "ladder"
  std::filesystem::path folder;
  std::vector<StudyCell> cells;
  /// TOML: what a call must have in common with those before it.
  std::string plan;

  std::filesystem::path FolderOf(const StudyCell& cell) const {
    return folder / "cells" / cell.name;
  }
  double Seconds() const;
};

/// `out`, or runs/<name>-<kind>, with "-quick" at its end if `quick`: what
/// --quick trains is no part of the whole.
std::filesystem::path StudyFolder(const std::string& name,
                                  const std::string& kind, bool quick,
                                  const std::filesystem::path& out);

/// Errors   ConfigError for fewer than 2 seeds.
void CheckSeeds(const std::string& kind, size_t seeds);

/// So many seeds, from the experiment's first on. More of them, of a later
/// call, add to what is there.
std::vector<uint64_t> ConsecutiveSeeds(const train::Experiment& experiment,
                                       size_t count);

/// Leaves statistics and digests of tensors out of the log.
void LogNoTensors(train::Experiment& experiment);
/// Leaves the losses, and the held-out one after the last step, in the log.
void LogLossesOnly(train::Experiment& experiment);

/// What is expected of a cell, or of all of them, where runs that have finished
/// take nothing: "3.4 min", "12 s left of 3.4 min", "done".
std::string CostText(const Study& study, const StudyCell& cell);
std::string CostText(const Study& study);
/// "12 s", "3.4 min"; "done" or "12 s left of 3.4 min" if less is left.
std::string CostText(double seconds, double seconds_left);
inline std::string CostText(double seconds) {
  return CostText(seconds, seconds);
}

/// Fills in the seconds of all cells of experiments, by measuring how fast each
/// arm trains here (campaign::MeasureArms), in the first cell that has one of
/// its name.
void EstimateStudy(std::vector<StudyCell>& cells);

/// Which runs one of several machines trains: those of every `count`-th seed,
/// from the `index`-th on, of all arms and cells, so that parts take equally
/// long; of these, those that are chosen by their names in ListStudy.
struct StudyPart {
  size_t index = 1;  ///< 1 to count
  size_t count = 1;
  campaign::RunChoice only = {};
};
/// "2/4". Errors   ConfigError if `text` has another form.
StudyPart ParseStudyPart(const std::string& text);

/// All runs, named "CELL/RUN", with the times that EstimateStudy filled in.
campaign::RunList ListStudy(const Study& study);

/// Changes no file. Errors   ConfigError if the folder holds another study or
/// other files, if there are fewer seeds than parts, or a run is chosen that
/// there is not.
void CheckStudy(const Study& study, const StudyPart& part = {});

/// CheckStudy, then makes the folder with its plan, and one for each cell.
/// Errors   IoError besides.
void PrepareStudy(const Study& study, const StudyPart& part = {});

/// CheckStudy of a folder that is judged without training. Errors   ConfigError
/// if no study is there.
void RequireStudy(const Study& study);

/// Trains what the folder lacks of a part, cell by cell, with one line of
/// progress and the time left. A finished run is kept, an unfinished one goes
/// on. Returns whether all are there: not if a signal came.
/// Errors   as train::ExecuteRuns.
/// Exact    the logs depend neither on where an earlier call ended nor on the
///          parts.
bool TrainStudy(const Study& study, const StudyPart& part = {});

/// The finished runs of a cell's seeds, by name; none before any has finished.
/// A run of a seed that the cell lacks, of an earlier call, is not among them.
/// Errors   as campaign::ReadRuns; FormatError if runs of one arm were made by
///          programs of different arithmetic, naming one.
std::vector<compare::Run> RunsOf(const Study& study, const StudyCell& cell);

/// Whether a run lost what it knew, or did not end (stats::DivergedAt).
bool Diverged(const runlog::RunLog& log);

/// ConfigError: no run of the study has finished, or not enough of them.
[[noreturn]] void ThrowNothingToJudge(const Study& study);

/// Held-out loss at the end of a run, nats; empty without one or where it is
/// not finite.
std::optional<double> FinalLoss(const runlog::RunLog& log);

}  // namespace isoloss::studies
