// Declares the runs of a study: experiments in cells of one folder. A later
// call trains only the runs that are missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/run_list.h"
#include "isoloss/compare/pair.h"
#include "isoloss/config/writer.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/run_hooks.h"
#include "isoloss/train/runner.h"

namespace isoloss::studies {

/// A cell is one experiment of a study.
struct Cell {
  std::string name;  ///< of its folder: letters, digits, '.', '-', '_'
  train::Experiment experiment;
  /// The cell's runs start with these hooks; may be empty.
  std::function<train::RunHooks(const train::Run& run)> hooks = {};
  /// Trains runs in place of train::ExecuteRuns, with its contract: it keeps
  /// finished runs, tells the hooks of each step and run, and ends early once
  /// hooks.stop is set. It uses only the arms, seeds and steps of the
  /// experiment. A cell with this function also has a result_file and its
  /// seconds.
  std::function<void(const std::vector<train::Run>& runs,
                     const std::filesystem::path& folder,
                     const train::RunnerHooks& hooks)>
      execute = {};
  /// Returns the file in `folder` that a finished run leaves; empty: its run
  /// log.
  std::function<std::filesystem::path(const std::filesystem::path& folder,
                                      const train::Run& run)>
      result_file = {};
  double seconds = 0;  ///< that all of its runs are expected to take

  /// Returns a run's name, which is unique among the runs of all cells.
  std::string NameOf(const train::Run& run) const {
    return name + "/" + run.Name();
  }
};

struct Plan {
  std::string kind;  ///< "ladder"
  std::filesystem::path folder;
  std::vector<Cell> cells;
  /// TOML: a call must have this text in common with earlier calls.
  std::string text;
  std::vector<std::string> notes = {};  ///< sentences for people

  std::filesystem::path FolderOf(const Cell& cell) const {
    return folder / "cells" / cell.name;
  }
  double Seconds() const;
};

/// Returns what the runs of an experiment depend on: TOML without the seeds,
/// and without what only says how runs are executed.
std::string PlannedToml(train::Experiment experiment);

/// Begins the text of a plan. `key` names the digest of `experiments`, TOML.
config::Writer BeginPlanText(const std::string& kind, const std::string& key,
                             const std::string& experiments);

/// Returns `count` seeds, from the experiment's first on. A later call with
/// more seeds adds to the runs that are there.
std::vector<uint64_t> ConsecutiveSeeds(const train::Experiment& experiment,
                                       size_t count);

/// Removes statistics and digests of tensors from the log.
void LogNoTensors(train::Experiment& experiment);
/// Keeps only the losses in the log, and the held-out loss after the last step.
void LogLossesOnly(train::Experiment& experiment);

/// Returns the expected time of a cell, or of all cells. Finished runs take no
/// time: "3.4 min", "12 s left of 3.4 min", "done".
std::string CostText(const Plan& plan, const Cell& cell);
std::string CostText(const Plan& plan);
/// Returns "12 s", "3.4 min"; "done" or "12 s left of 3.4 min" if less is left.
std::string CostText(double seconds, double seconds_left);
inline std::string CostText(double seconds) {
  return CostText(seconds, seconds);
}

/// Fills in the seconds of all cells that train experiments. It measures each
/// arm's speed here, in the first cell that has an arm of that name.
void EstimateCosts(std::vector<Cell>& cells);

/// Selects the runs that one of several machines trains: every `count`-th seed,
/// from the `index`-th on, in all arms and cells, so that parts take equally
/// long. Among these runs it trains only the ones that are chosen by their
/// names in ListRuns.
struct Part {
  size_t index = 1;  ///< 1 to count
  size_t count = 1;
  campaign::RunChoice only = {};
};
/// Parses "2/4". Errors   ConfigError if `text` has another form.
Part ParsePart(const std::string& text);

/// Returns all runs, named "CELL/RUN", with the times that EstimateCosts filled
/// in.
campaign::RunList ListRuns(const Plan& plan);

/// Makes the folder with its plan, and a folder for each cell.
/// Errors   ConfigError if the folder holds another study or foreign files, if
///          there are fewer seeds than parts, or if a chosen run does not
///          exist; IoError.
void PrepareFolder(const Plan& plan, const Part& part = {});

/// Checks a folder that is judged without training; changes no file.
/// Errors   ConfigError as PrepareFolder, or if no study is there.
void RequireFolder(const Plan& plan);

/// Trains the runs of a part that the folder lacks, cell by cell, with one line
/// of progress and the time left. Finished runs are kept, and unfinished runs
/// go on. Returns whether all runs are there: false if a signal came.
/// Errors   as train::ExecuteRuns.
/// Exact    the logs depend neither on where an earlier call ended nor on the
///          parts.
bool Train(const Plan& plan, const Part& part = {});

/// Returns the finished runs of a cell's seeds, by name; none before any run
/// has finished. It leaves out an earlier call's runs of seeds that the cell
/// lacks.
/// Errors   as logs::ReadRuns; FormatError if runs of one arm were made by
///          programs of different arithmetic, naming one.
std::vector<compare::Run> RunsOf(const Plan& plan, const Cell& cell);

/// Returns whether a run lost what it knew, or did not end (stats::DivergedAt).
bool Diverged(const runlog::RunLog& log);

/// Describes how a run ended.
struct RunEnd {
  /// The held-out loss is in nats; empty without one or where it is not finite.
  std::optional<double> loss;
  bool diverged = false;
};
/// Returns the ends by arm and seed. Errors   as RunsOf.
std::map<std::string, std::map<int64_t, RunEnd>> EndsOf(const Plan& plan,
                                                        const Cell& cell);

/// Throws ConfigError: no run of the study has finished, or too few runs have.
[[noreturn]] void ThrowNothingToJudge(const Plan& plan);

}  // namespace isoloss::studies
