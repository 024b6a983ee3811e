// Watches the pairs of a live experiment and says when going on is no use.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/looks.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/seed_watch.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/runner.h"

namespace isoloss::verdicts {

/// Says why going on is no use.
struct HopelessPair {
  std::string arm;
  uint64_t seed = 0;
  int64_t step = 0;  ///< after which it was stopped
  std::string reason;
};

/// Returns the verdicts on `runs`, which were stopped together: FAIL of level
/// L6 for the arm of `hopeless`, INCONCLUSIVE for other candidates. The
/// verdicts name `folder`, which has the runs.
std::vector<gate::Judgement> JudgeStopped(
    const HopelessPair& hopeless, const std::vector<compare::Run>& runs,
    const std::string& baseline_arm, const std::vector<std::string>& candidates,
    const std::optional<gate::Looks>& looks, const gate::Policy& policy,
    const std::filesystem::path& folder);

/// Has a gate::PairWatch for each candidate and seed, and a gate::SeedWatch for
/// each candidate. It is thread-safe.
class EarlyAbort {
 public:
  /// Watches a job that trains `pairs` pairs of each candidate, in runs of
  /// `steps` steps. All arms but candidates and baseline are ignored.
  /// Errors   as gate::SeedWatch.
  EarlyAbort(std::string baseline_arm,
             const std::vector<std::string>& candidates,
             const gate::Policy& policy, int64_t pairs, int64_t steps);

  /// Takes a step of one run, each arm's in order. Returns true once going on
  /// is no use, and then for ever: all runs should stop.
  bool Add(const train::Run& run, const runlog::StepRow& row);

  /// Returns the reason. Call it once the runs have ended.
  const std::optional<HopelessPair>& hopeless() const { return hopeless_; }

 private:
  /// The steps of a candidate's pair wait until the other arm has them.
  struct Pair {
    gate::PairWatch watch;
    std::deque<runlog::StepRow> baseline = {};
    std::deque<runlog::StepRow> candidate = {};
  };
  using Key = std::pair<std::string, uint64_t>;  // candidate arm, seed

  void Advance(const Key& key, Pair& pair);

  const std::string baseline_arm_;
  const gate::Policy policy_;
  const int64_t steps_;
  std::mutex mutex_;
  /// The baseline's steps so far are kept for candidates that begin later.
  std::map<uint64_t, std::deque<runlog::StepRow>> baseline_steps_;
  std::map<Key, Pair> pairs_;
  std::map<std::string, gate::SeedWatch> seeds_;  ///< by candidate arm
  std::optional<HopelessPair> hopeless_;
};

}  // namespace isoloss::verdicts
