// Tiny runs with one thing wrong, and how they end.
#pragma once

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "isoloss/train/parity.h"
#include "isoloss/train/trainer.h"
#include "support/memory_network.h"
#include "tampered_transport.h"

namespace isoloss::faults {

/// Notes when a fault strikes first: a test without one would prove nothing.
class Injection {
 public:
  using Clock = std::chrono::steady_clock;

  void Strike() {
    Clock::rep never = 0;
    at_.compare_exchange_strong(never, Clock::now().time_since_epoch().count());
  }
  /// Strikes and returns true the first time only.
  bool Once() {
    if (struck_.exchange(true)) return false;
    Strike();
    return true;
  }
  bool struck() const { return at_ != 0; }
  double SecondsUntil(Clock::time_point end) const {
    return std::chrono::duration<double>(
               end - Clock::time_point(Clock::duration(at_.load())))
        .count();
  }

 private:
  std::atomic<bool> struck_{false};
  std::atomic<Clock::rep> at_{0};
};

/// A run of the tiny experiment: 3 layers, 2 of them MoE layers, 8 experts, top
/// 2; 4 sequences of 32 tokens on 4 ranks, 2 steps.
struct Scene {
  std::vector<std::string> overrides = {};
  /// Several: trainers on as many threads, connected by memory links.
  int processes = 1;
  /// Against one rank (train::CompareWithOneRank), or just the run.
  bool parity = false;
  /// Longest wait of an operation. Short only where it must pass.
  double deadline_seconds = 20;

  // What goes wrong.
  std::map<int, Faults> faults = {};          ///< by process
  std::map<int, train::RunHooks> hooks = {};  ///< by process
  transport::MemoryNetwork::Hook wire = {};
  /// Set once the network exists, for hooks that silence a process.
  transport::MemoryNetwork** network = nullptr;
  decltype(transport::TransportOptions::damage) damage = {};
};

/// How each process ended.
struct Ending {
  std::vector<std::string> errors;  ///< of TransportError; "": none
  std::vector<runlog::RunLog> logs;
  std::vector<train::ParityReport> reports;  ///< if Scene::parity
  Injection::Clock::time_point over;

  bool healthy() const;
  /// The first difference in words, the same in all processes; "": none.
  std::string difference() const;
};

Ending Play(const Scene& scene);
/// The same without what goes wrong.
Ending PlayHealthy(Scene scene);

/// The fault struck, every process ended with a TransportError, some process's
/// says what `message` demands, and all was over one second after the deadline.
void ExpectDetected(const Scene& scene, const Injection& injection,
                    const testing::Matcher<std::string>& message);

/// The fault struck, the run went on, and parity names the first difference.
void ExpectNamed(const Scene& scene, const Injection& injection,
                 const testing::Matcher<std::string>& difference);

/// The fault struck, and no bit differs from the run on one rank.
void ExpectHarmless(const Scene& scene, const Injection& injection);

/// Everything numeric that a run leaves, as bits and digests.
std::vector<std::string> TraceOf(const runlog::RunLog& log);

/// A process that leaves the others' experts out of the gradient norm, from
/// step 1 on: between conservation and vote, scalars are the norm's roots.
Faults NormOfOwnExperts(Injection& injection);

/// Bytes of one row, BF16.
inline constexpr size_t kRowBytes = 32 * 2;

}  // namespace isoloss::faults
