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

#include "isoloss/campaign/evidence_files.h"
#include "isoloss/compare/pair.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/sequential_watch.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::campaign {

/// How batch means of good pairs of a candidate arm are spread; of an arm that
/// is not there nobody knows.
using SpreadsByArm = std::map<std::string, gate::BatchSpread>;

/// Of the seeds ensemble of each candidate. Says on standard error if one is
/// too short to tell.
/// Errors   ConfigError if an ensemble is of other recipes, another
///          configuration or other numerics than the runs will be.
SpreadsByArm SpreadsOf(const EvidenceFiles& evidence,
                       const train::Experiment& experiment,
                       const corpus::Corpus& corpus,
                       const std::vector<std::string>& candidates,
                       const gate::Policy& policy);

/// Why going on is no use.
struct HopelessPair {
  std::string arm;
  uint64_t seed = 0;
  int64_t step = 0;  ///< after which it was stopped
  std::string reason;
  bool known_spread = false;  ///< judged by that of an ensemble
};

/// The verdicts on runs that were stopped together: FAIL of level L6 for the
/// arm of `hopeless`, INCONCLUSIVE for other candidates. `runs`: what they
/// left. `folder`, which has it, is named for the reader.
std::vector<gate::Judgement> JudgeStopped(
    const HopelessPair& hopeless, const std::vector<compare::Run>& runs,
    const std::string& baseline_arm, const std::vector<std::string>& candidates,
    const EvidenceFiles& evidence, const gate::Policy& policy,
    const std::filesystem::path& folder);

/// One gate::SequentialWatch for each candidate and seed. Thread-safe.
class EarlyAbort {
 public:
  /// As gate::SequentialWatch.
  EarlyAbort(std::string baseline_arm, std::vector<std::string> candidates,
             const gate::Policy& policy, SpreadsByArm spreads);

  /// A step of one run, each arm's in order; those of arms that are neither
  /// baseline nor candidates are passed over. True once a pair is beyond hope,
  /// and then for ever: all runs should stop.
  bool Add(const train::Run& run, const runlog::StepRow& row);

  /// That pair; once the runs have ended.
  const std::optional<HopelessPair>& hopeless() const { return hopeless_; }

 private:
  /// A candidate's pair: steps wait until the other arm has them.
  struct Pair {
    gate::SequentialWatch watch;
    std::deque<runlog::StepRow> baseline = {};
    std::deque<runlog::StepRow> candidate = {};
  };
  using Key = std::pair<std::string, uint64_t>;  // candidate arm, seed

  gate::SequentialWatch WatchOf(const std::string& arm) const;
  void Advance(const Key& key, Pair& pair);

  const std::string baseline_arm_;
  const std::vector<std::string> candidates_;
  const gate::Policy policy_;
  const SpreadsByArm spreads_;
  std::mutex mutex_;
  /// The baseline's steps so far, for candidates that begin later.
  std::map<uint64_t, std::deque<runlog::StepRow>> baseline_steps_;
  std::map<Key, Pair> pairs_;
  std::optional<HopelessPair> hopeless_;
};

}  // namespace isoloss::campaign
