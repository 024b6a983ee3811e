// Draws runs that are being made, as a picture of text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/chart.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::report {

enum class RunState {
  kStarting,  ///< its journal has no row yet
  kRunning,
  kInterrupted,  ///< a signal ended it; `--resume` goes on
  kAborted,      ///< it diverged
  kFinished,
  kUnreadable,  ///< LiveRun::note says why
};

/// Returns whether nothing has ended the run.
bool IsUnderWay(RunState state);

/// Describes the present state of one run.
struct LiveRun {
  std::string name;
  RunState state = RunState::kStarting;
  runlog::RunLog log;
  /// This time has passed since its journal grew last; NaN if it has none.
  double quiet_seconds = 0;
  std::string note;  ///< something to say about its files, or ""
};

/// Returns the state that the log shows. `has_journal`: no final log was
/// written yet.
RunState StateOf(const runlog::RunLog& log, bool has_journal);

/// Describes the speed over the last steps.
struct Pace {
  double tokens_per_second = 0;
  double step_seconds = 0;
};
/// Returns the pace over up to 20 steps; empty without clocks.
std::optional<Pace> PaceOf(const runlog::StepColumns& steps);

/// Returns "1:02:03" or "2:03".
std::string DurationText(double seconds);

/// Returns the first `columns` characters (code points) of a line; ANSI colours
/// take no column and are kept.
std::string ClipLine(std::string_view line, int columns);

/// A job consists of several runs, some of which have not begun.
struct LiveJob {
  size_t runs = 0;      ///< that it makes
  size_t finished = 0;  ///< that have ended, for whatever reason
  std::vector<std::string> waiting = {};  ///< that have not begun
  double done = 0;                        ///< share of all steps
  /// The time is told by the speed of the runs under way; empty if no run is
  /// under way, or none has a clock.
  std::optional<double> seconds_left = {};
};

/// Returns the job that makes the runs `planned`, of `steps` each, of which
/// `runs` exist.
LiveJob JobOf(const std::vector<std::string>& planned, int64_t steps,
              const std::vector<LiveRun>& runs);

/// Returns "42 % done, 3 of 20 runs finished, 1:02 left" in at most `columns`.
/// A shorter text keeps the time left the longest.
std::string JobLine(const LiveJob& job, int columns);

/// Returns lines without line ends, none wider than style.width, and at most
/// `rows` if drawing less can achieve it. First comes the job, then each run
/// under way with numbers, bar, loss curve and last events, then a line for
/// each remaining run.
std::vector<std::string> DrawLiveRuns(const std::vector<LiveRun>& runs,
                                      int rows,
                                      const document::TextStyle& style,
                                      const std::optional<LiveJob>& job = {});

/// Returns all runs and the job on one line, for output that is no terminal.
std::string LiveLine(const std::vector<LiveRun>& runs,
                     const std::optional<LiveJob>& job = {});

}  // namespace isoloss::report
