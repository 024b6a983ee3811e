// Shows the progress of several runs at once on the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/report/heartbeat.h"

namespace isoloss::report {

/// Shows one bar per run in progress with its loss, and the time left for all
/// runs. On a terminal it is redrawn in place, within the width and height. In
/// a file it is a line when a run ends, and a heartbeat. Thread-safe.
class Progress {
 public:
  /// `names` are those of the runs, in the order of their bars; each run will
  /// take `steps`.
  Progress(std::vector<std::string> names, int64_t steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Run number `run` has finished step `step` with this loss.
  void Step(size_t run, int64_t step, double loss_nats);
  /// Run number `run` has ended, for whatever reason.
  void Finish(size_t run, const std::string& outcome);
  /// Run number `run` was finished before.
  void Skip(size_t run);
  /// Prints a line above the bars.
  void Say(const std::string& text);
  /// Erases the bars, so that further text can follow.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  struct Bar {
    std::string name;
    int64_t step = 0;
    double loss_nats = 0;
    bool finished = false;
  };

  /// Draws line by line, and never from the top left corner to the end of the
  /// screen: tmux takes that for a screen that is left, and keeps it.
  void Redraw();
  void Erase();
  /// Returns a line at most `columns` wide, without a line end.
  std::string BarLine(const Bar& bar, size_t columns) const;
  std::string TotalLine(size_t columns) const;
  /// Returns the runs in progress, for a line of a file.
  std::string Beat();

  const bool terminal_;
  const bool ascii_;
  const int64_t steps_;
  const Clock::time_point start_;
  std::mutex mutex_;
  std::vector<Bar> bars_;
  size_t name_width_ = 0;
  int64_t skipped_ = 0;  // steps that took none of the time
  Clock::time_point last_draw_;
  size_t lines_drawn_ = 0;
  std::optional<Heartbeat> heartbeat_;  // last: it asks the members above
};

}  // namespace isoloss::report
