// Whether runs that are still training should be stopped: because what L5 tests
// is beyond hope, or because one of them has come to nothing. It only ever
// aborts: silence is no verdict.
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

/// One pair while it trains. Feed it each step of both arms.
class PairWatch {
 public:
  /// Watches runs of `steps` steps. Keeps a reference to the policy.
  PairWatch(const Policy& policy, int64_t steps);

  /// The next step of both arms. Returns why the pair has come to nothing, or
  /// "": a loss or gradient norm is not finite, or a gradient has such an
  /// element; or the mean loss of policy.sequential_batch steps of the
  /// candidate is above that of its first step, what it knew untrained, while
  /// it is more than policy.gross_factor margins worse than the baseline's.
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

/// At which numbers of ended pairs a candidate's watch looks, and the nominal
/// level of the interval there: stats::LookLevels that spend
/// policy.sequential_alpha over the planned pairs as Pocock's, shared by all
/// candidates of the job and by both sides. Of more than 32 pairs not every
/// number is a look.
using WatchLevels = std::map<int64_t, double>;

/// Errors   ConfigError if the policy is out of its ranges.
WatchLevels LevelsOfWatch(const Policy& policy, int64_t planned_pairs,
                          int64_t candidates);

/// The pairs of one candidate that have ended, in the order in which they did.
///
/// From policy.min_seeds on it tests what L5 tests: whether the interval of the
/// mean over pairs, from their own spread, lies beyond the margin. So of jobs
/// whose candidates' true means all lie within the margin at most
/// sequential_alpha are ever stopped.
class SeedWatch {
 public:
  /// Keeps a reference to the policy.
  SeedWatch(const Policy& policy, WatchLevels levels)
      : policy_(policy), levels_(std::move(levels)) {}

  /// The difference of the next pair, in percent. Returns why the mean is
  /// beyond hope, or "".
  std::string Add(double percent);

 private:
  const Policy& policy_;
  WatchLevels levels_;
  std::vector<double> percent_;
};

}  // namespace isoloss::gate
