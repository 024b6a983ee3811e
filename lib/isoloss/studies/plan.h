// The runs that a study takes: experiments in cells of one folder, of which a
// later call trains only what is missing.
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

/// One experiment of a study.
struct Cell {
  std::string name;  ///< of its folder: letters, digits, '.', '-', '_'
  train::Experiment experiment;
  /// Hooks that its runs begin with; may be empty.
  std::function<train::RunHooks(const train::Run& run)> hooks = {};
  /// Trains runs in place of train::ExecuteRuns, with its contract: it keeps
  /// what is finished, tells the hooks of each step and run, and ends early
  /// once hooks.stop is set. Of the experiment it takes arms, seeds and steps.
  /// A cell with it has a result_file and its seconds, too.
  std::function<void(const std::vector<train::Run>& runs,
                     const std::filesystem::path& folder,
                     const train::RunnerHooks& hooks)>
      execute = {};
  /// The file in `folder` that a finished run leaves; empty: its run log.
  std::function<std::filesystem::path(const std::filesystem::path& folder,
                                      const train::Run& run)>
      result_file = {};
  double seconds = 0;  ///< that all of its runs are expected to take

  /// The name of a run among those of all cells.
  std::string NameOf(const train::Run& run) const {
    return name + "/" + run.Name();
  }
};

struct Plan {
  std::string kind;  ///< "ladder"
  std::filesystem::path folder;
  std::vector<Cell> cells;
  /// TOML: what a call must have in common with those before it.
  std::string text;
  std::vector<std::string> notes = {};  ///< sentences for people

  std::filesystem::path FolderOf(const Cell& cell) const {
    return folder / "cells" / cell.name;
  }
  double Seconds() const;
};

/// Begins the text of a plan. `key` names the digest of `experiments`, TOML.
config::Writer BeginPlanText(const std::string& kind, const std::string& key,
                             const std::string& experiments);

/// `count` seeds, from the experiment's first on. A later call with more of
/// them adds to what is there.
std::vector<uint64_t> ConsecutiveSeeds(const train::Experiment& experiment,
                                       size_t count);

/// Leaves statistics and digests of tensors out of the log.
void LogNoTensors(train::Experiment& experiment);
/// Leaves the losses, and the held-out one after the last step, in the log.
void LogLossesOnly(train::Experiment& experiment);

/// The expected time of a cell, or of all cells. Runs that have finished take
/// nothing: "3.4 min", "12 s left of 3.4 min", "done".
std::string CostText(const Plan& plan, const Cell& cell);
std::string CostText(const Plan& plan);
/// "12 s", "3.4 min"; "done" or "12 s left of 3.4 min" if less is left.
std::string CostText(double seconds, double seconds_left);
inline std::string CostText(double seconds) {
  return CostText(seconds, seconds);
}

/// Fills in the seconds of all cells that train experiments. It measures how
/// fast each arm trains here, in the first cell that has one of its name.
void EstimateCosts(std::vector<Cell>& cells);

/// Which runs one of several machines trains: those of every `count`-th seed,
/// from the `index`-th on, of all arms and cells, so that parts take equally
/// long; of these, those that are chosen by their names in ListRuns.
struct Part {
  size_t index = 1;  ///< 1 to count
  size_t count = 1;
  campaign::RunChoice only = {};
};
/// "2/4". Errors   ConfigError if `text` has another form.
Part ParsePart(const std::string& text);

/// All runs, named "CELL/RUN", with the times that EstimateCosts filled in.
campaign::RunList ListRuns(const Plan& plan);

/// Makes the folder with its plan, and one for each cell. Errors   ConfigError
/// if the folder holds another study or other files, if there are fewer seeds
/// than parts, or a run is chosen that there is not; IoError.
void PrepareFolder(const Plan& plan, const Part& part = {});

/// For a folder that is judged without training: changes no file. Errors
/// ConfigError as PrepareFolder, or if no study is there.
void RequireFolder(const Plan& plan);

/// Trains what the folder lacks of a part, cell by cell, with one line of
/// progress and the time left. A finished run is kept, an unfinished one goes
/// on. Returns whether all are there: not if a signal came.
/// Errors   as train::ExecuteRuns.
/// Exact    the logs depend neither on where an earlier call ended nor on the
///          parts.
bool Train(const Plan& plan, const Part& part = {});

/// The finished runs of a cell's seeds, by name; none before any has finished.
/// A run of a seed that the cell lacks, of an earlier call, is not among them.
/// Errors   as campaign::ReadRuns; FormatError if runs of one arm were made by
///          programs of different arithmetic, naming one.
std::vector<compare::Run> RunsOf(const Plan& plan, const Cell& cell);

/// Whether a run lost what it knew, or did not end (stats::DivergedAt).
bool Diverged(const runlog::RunLog& log);

/// How a run ended.
struct RunEnd {
  /// Held-out loss, nats; empty without one or where it is not finite.
  std::optional<double> loss;
  bool diverged = false;
};
/// By arm and seed. Errors   as RunsOf.
std::map<std::string, std::map<int64_t, RunEnd>> EndsOf(const Plan& plan,
                                                        const Cell& cell);

/// ConfigError: no run of the study has finished, or not enough of them.
[[noreturn]] void ThrowNothingToJudge(const Plan& plan);

}  // namespace isoloss::studies
