// Progress of several runs at once, on the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace isoloss::cli {

/// One bar per run in progress with its loss, and the time left for all of
/// them. Redrawn in place on a terminal, within its width and height; elsewhere
/// one line when a run ends. Thread-safe.
class Progress {
 public:
  /// `names` of the runs, in the order of their bars; `steps` each will take.
  Progress(std::vector<std::string> names, int64_t steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Run number `run` has finished step `step` with this loss.
  void Step(size_t run, int64_t step, double loss_nats);
  /// Run number `run` has ended, for whatever reason.
  void Finish(size_t run, const std::string& outcome);
  /// Prints a line above the bars.
  void Say(const std::string& text);
  /// Erases the bars, so that other text can follow.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  struct Bar {
    std::string name;
    int64_t step = 0;
    double loss_nats = 0;
    bool finished = false;
  };

  void Redraw();
  void Erase();
  /// At most `columns` wide, without a line end.
  std::string BarLine(const Bar& bar, size_t columns) const;
  std::string TotalLine() const;

  const bool terminal_;
  const int64_t steps_;
  const Clock::time_point start_;
  std::mutex mutex_;
  std::vector<Bar> bars_;
  size_t name_width_ = 0;
  Clock::time_point last_draw_;
  size_t lines_drawn_ = 0;
};

}  // namespace isoloss::cli
