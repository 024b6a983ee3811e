// What long work is doing, on standard error: in place on a terminal, elsewhere
// a line now and then, so that a log shows that the program lives.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace isoloss::report {

/// Draws on standard error: is it a terminal that knows escape sequences?
bool DrawsOnErrors();

/// "1:02:03 left" of `left` pieces of work if `done` took `seconds`; "" if that
/// can't be told yet.
std::string TimeLeft(double seconds, double done, double left);

/// Calls for a line after the first seconds and then at intervals, from a
/// thread of its own, while it exists. On a terminal it shows what Set was
/// given, in one line.
class Heartbeat {
 public:
  /// Lines are what Set was given last.
  Heartbeat();
  /// Lines are what `text` says at that time; "" prints nothing. It is called
  /// from another thread, and never on a terminal.
  explicit Heartbeat(std::function<std::string()> text);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Sets the text of the work that is going on now. Thread-safe.
  void Set(const std::string& text);
  /// Erases the line of a terminal, so that other text can follow.
  void Clear();

 private:
  void Beat();

  const bool terminal_;
  const std::function<std::string()> ask_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::string text_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace isoloss::report
