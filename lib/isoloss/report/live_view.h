// Runs that are being made, as a picture of text.
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

/// Whether nothing has ended it.
bool IsUnderWay(RunState state);

/// One run as it stands.
struct LiveRun {
  std::string name;
  RunState state = RunState::kStarting;
  runlog::RunLog log;
  /// Since its journal grew last; NaN if it has none.
  double quiet_seconds = 0;
  std::string note;  ///< something to say about its files, or ""
};

/// By what its log holds. `has_journal`: no final log was written yet.
RunState StateOf(const runlog::RunLog& log, bool has_journal);

/// Speed over the last steps.
struct Pace {
  double tokens_per_second = 0;
  double step_seconds = 0;
};
/// Over up to 20 steps; empty without clocks.
std::optional<Pace> PaceOf(const runlog::StepColumns& steps);

/// "1:02:03" or "2:03".
std::string DurationText(double seconds);

/// The first `columns` characters (code points) of a line; ANSI colours take
/// none and are kept.
std::string ClipLine(std::string_view line, int columns);

/// A job of several runs, of which some have not begun.
struct LiveJob {
  size_t runs = 0;      ///< that it makes
  size_t finished = 0;  ///< that have ended, for whatever reason
  std::vector<std::string> waiting = {};  ///< that have not begun
  double done = 0;                        ///< share of all steps
  /// At the speed of the runs that are under way; empty if none is, or none
  /// has a clock.
  std::optional<double> seconds_left = {};
};

/// The job that makes the runs `planned`, of `steps` each, of which `runs` are
/// there.
LiveJob JobOf(const std::vector<std::string>& planned, int64_t steps,
              const std::vector<LiveRun>& runs);

/// "42 % done, 3 of 20 runs finished, 1:02 left", or less of it, the time left
/// to the last, in at most `columns`.
std::string JobLine(const LiveJob& job, int columns);

/// Lines without line ends, none wider than style.width, at most `rows` if they
/// can be fewer by drawing less: the job, runs that are under way with numbers,
/// bar, loss curve and last events, then a line for each other one.
std::vector<std::string> DrawLiveRuns(const std::vector<LiveRun>& runs,
                                      int rows,
                                      const document::TextStyle& style,
                                      const std::optional<LiveJob>& job = {});

/// All runs and the job on one line, for output that is no terminal.
std::string LiveLine(const std::vector<LiveRun>& runs,
                     const std::optional<LiveJob>& job = {});

}  // namespace isoloss::report
