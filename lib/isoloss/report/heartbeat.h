// Shows on standard error what long work is doing. On a terminal it redraws the
// line in place. In a log it writes a line now and then, which shows that the
// program lives.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace isoloss::report {

/// Returns whether standard error is a terminal that knows escape sequences.
bool DrawsOnErrors();

/// Returns "1:02:03 left" for `left` pieces of work if `done` took `seconds`;
/// "" if that can't be told yet.
std::string TimeLeft(double seconds, double done, double left);

/// Writes a line after the first seconds and then at intervals, from its own
/// thread, while it exists. On a terminal it shows the text of Set, in one
/// line.
class Heartbeat {
 public:
  /// Each line is the text that was last given to Set.
  Heartbeat();
  /// Each line is what `text` returns at that time; "" prints nothing. It is
  /// called from a different thread, and never on a terminal.
  explicit Heartbeat(std::function<std::string()> text);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Sets the text of the work that is going on now. Thread-safe.
  void Set(const std::string& text);
  /// Erases the line of a terminal, so that further text can follow.
  void Clear();

 private:
  void Beat();

  const bool terminal_;
  const std::function<std::string()> ask_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::string text_;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace isoloss::report
