// Decides whether runs that are still training should be stopped. The reason
// is that they can't pass L5 any more, or that one of them has come to
// nothing. The watch can only abort: its silence is no verdict.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/gate/policy.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::gate {

/// Watches one pair while it trains. Feed it each step of both arms.
class PairWatch {
 public:
  /// Watches runs of `steps` steps. Keeps a reference to the policy.
  PairWatch(const Policy& policy, int64_t steps);

  /// Adds the next step of both arms. Returns why the pair has come to
  /// nothing, or "". The reason may be a loss, a gradient norm or an element
  /// of a gradient that is not finite. It may also be the candidate's mean
  /// loss over policy.sequential_batch steps. That must be above the loss of
  /// its first step, which it had untrained, and more than policy.gross_factor
  /// margins worse than the baseline's.
  /// Errors   ConfigError if the steps differ or do not ascend by one.
  std::string Add(const runlog::StepRow& baseline,
                  const runlog::StepRow& candidate);

  int64_t step() const { return step_; }
  /// Returns the quantity that L5 tests, in percent: the mean over the final
  /// window of 100 (L_c - L_b) / L_b. Empty before the last step.
  std::optional<double> window_percent() const;

 private:
  std::string AddToBatch(double baseline, double candidate);

  const Policy& policy_;
  int64_t steps_;
  int64_t window_;  ///< steps in it
  int64_t step_ = 0;
  double first_loss_ = 0;
  double batch_baseline_ = 0;  ///< sums over the batch so far
  double batch_candidate_ = 0;
  double window_sum_ = 0;
};

/// Maps the numbers of ended pairs at which a candidate's watch looks to the
/// nominal level of the interval there. The levels are stats::LookLevels,
/// which spend policy.sequential_alpha over the planned pairs as Pocock's do.
/// All candidates of the job and both sides share it. With more than 32 pairs
/// the watch does not look at every number.
using WatchLevels = std::map<int64_t, double>;

/// Errors   ConfigError if the policy is out of its ranges.
WatchLevels LevelsOfWatch(const Policy& policy, int64_t planned_pairs,
                          int64_t candidates);

/// Holds the pairs of one candidate that have ended, in the order of their
/// ends.
///
/// From policy.min_seeds pairs on it tests as L5 does: whether the interval of
/// the mean over pairs, from their own spread, lies beyond the margin.
/// Consider all jobs whose candidates' true means lie within the margin: at
/// most sequential_alpha of them are ever stopped.
class SeedWatch {
 public:
  /// Keeps a reference to the policy.
  SeedWatch(const Policy& policy, WatchLevels levels)
      : policy_(policy), levels_(std::move(levels)) {}

  /// Adds the difference of the next pair, in percent. Returns why the mean
  /// can't come within the margin any more, or "".
  std::string Add(double percent);

 private:
  const Policy& policy_;
  WatchLevels levels_;
  std::vector<double> percent_;
};

}  // namespace isoloss::gate
