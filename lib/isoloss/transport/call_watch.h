// Watches the thread that talks to MPI and notices if it is stuck. No MPI call
// has a limit of its own, and a stopped launcher or a dead network may keep one
// for ever.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace isoloss::transport {

class CallWatch {
 public:
  struct Rules {
    /// Returns why calls may not end, as soon as that is known; "" if there is
    /// no reason.
    std::function<std::string()> trouble = {};
    /// Returns why nobody waits for this process any more; "" if somebody may.
    /// Called once the process has made no MPI call for the deadline.
    std::function<std::string()> forsaken = {};
    /// Called once, by the watching thread, with what is stuck.
    std::function<void(const std::string& problem)> stuck = {};
  };

  explicit CallWatch(Rules rules);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  void set_deadline(double seconds) { deadline_ = seconds; }

  /// While a Scope lives, its thread is in `call` (a literal). The call may
  /// take `longest` seconds, but only the deadline if there is trouble. A
  /// Scope belongs to one thread and costs some nanoseconds.
  class Scope {
   public:
    Scope(CallWatch& watch, const char* call, double longest);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CallWatch& watch_;
  };

 private:
  void Run();
  std::string ProblemAfter(bool in_call, double seconds) const;

  const Rules rules_;
  std::atomic<double> deadline_{60};
  std::atomic<uint64_t> turn_{0};  // odd while a call is under way
  std::atomic<const char*> call_{""};
  std::atomic<double> longest_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace isoloss::transport
