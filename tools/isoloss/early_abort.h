// Watches the pairs of a live experiment and says when going on is no use.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "isoloss/gate/policy.h"
#include "isoloss/gate/sequential_watch.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/runner.h"

namespace isoloss::cli {

/// One gate::SequentialWatch for each candidate and seed. Thread-safe.
class EarlyAbort {
 public:
  /// As gate::SequentialWatch.
  EarlyAbort(std::string baseline_arm, const gate::Policy& policy,
             std::optional<gate::BatchSpread> spread);

  /// A step of one run, each arm's in order. Returns why all should stop, once
  /// a pair is beyond hope; then the same for ever.
  std::optional<std::string> Add(const train::Run& run,
                                 const runlog::StepRow& row);

 private:
  /// A candidate's pair: steps wait until the other arm has them.
  struct Pair {
    gate::SequentialWatch watch;
    std::deque<runlog::StepRow> baseline = {};
    std::deque<runlog::StepRow> candidate = {};
  };
  using Key = std::pair<std::string, uint64_t>;  // candidate arm, seed

  void Advance(const Key& key, Pair& pair);

  const std::string baseline_arm_;
  const gate::Policy policy_;
  const std::optional<gate::BatchSpread> spread_;
  std::mutex mutex_;
  /// The baseline's steps so far, for candidates that begin later.
  std::map<uint64_t, std::deque<runlog::StepRow>> baseline_steps_;
  std::map<Key, Pair> pairs_;
  std::optional<std::string> reason_;
};

}  // namespace isoloss::cli
