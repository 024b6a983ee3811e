// A thread that notices when the thread that talks to MPI is stuck: no MPI call
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
    /// Why calls may not end, as soon as it is known: "" if nothing is.
    std::function<std::string()> trouble = {};
    /// Why nobody waits for this process any more: "" while somebody may.
    /// Asked once the process has made no call for the deadline.
    std::function<std::string()> forsaken = {};
    /// Told once, by the watching thread, what is stuck.
    std::function<void(const std::string& problem)> stuck = {};
  };

  explicit CallWatch(Rules rules);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  void set_deadline(double seconds) { deadline_ = seconds; }

  /// While it lives, its thread is in `call` (a literal), which may take
  /// `longest` seconds, but only the deadline if there is trouble. For one
  /// thread; costs some nanoseconds.
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
