// Runs that are being made, as a picture of text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/report/chart.h"
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

/// Lines without line ends, none wider than style.width, at most `rows` if they
/// can be fewer by drawing less: runs that are under way with numbers, bar,
/// loss curve and last events, then a line for each other one.
std::vector<std::string> DrawLiveRuns(const std::vector<LiveRun>& runs,
                                      int rows, const TextStyle& style);

/// All runs on one line, for output that is no terminal.
std::string LiveLine(const std::vector<LiveRun>& runs);

}  // namespace isoloss::report
