// Whether a run that is still training should be stopped, from the paired steps
// of both arms. It only ever aborts: silence is no verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/policy.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/stats/sequential.h"

namespace isoloss::gate {

/// How batch means of good pairs are spread.
struct BatchSpread {
  double mean_percent = 0;
  /// Standard deviation of a batch mean about the mean of its run; > 0.
  double sd_percent = 0;
};

/// Of the members of a seeds ensemble with two or more whole batches each.
/// Special  empty if there are fewer than policy.min_members such members, a
///          value is not finite, or nothing varies.
std::optional<BatchSpread> SpreadOfBatches(const NullEnsemble& ensemble,
                                           const Policy& policy);

struct Abort {
  int64_t step = 0;  ///< after which the run should stop
  stats::Alarm alarm = stats::Alarm::kNone;
  std::string reason;  ///< with numbers
};

/// Feed it each step of both arms; what it watches is 100 (L_c - L_b) / L_b in
/// batches of policy.sequential_batch steps.
class SequentialWatch {
 public:
  /// Without `spread` there is no e-process and no CUSUM: an asymptotic
  /// confidence sequence takes their place (stats/sequential.h).
  /// Errors   ConfigError if the policy is out of its ranges.
  explicit SequentialWatch(
      const Policy& policy,
      const std::optional<BatchSpread>& spread = std::nullopt);

  /// The next step of both arms. The first abort stands.
  /// Special  a loss or gradient norm that is not finite, or a gradient with
  ///          such an element, aborts at once.
  /// Errors   ConfigError if the steps differ or do not ascend.
  const std::optional<Abort>& Add(const runlog::StepRow& baseline,
                                  const runlog::StepRow& candidate);

  const std::optional<Abort>& abort() const { return abort_; }

 private:
  void CheckOrder(int64_t baseline, int64_t candidate);
  void AddBatch(int64_t step);

  double margin_percent_;
  int64_t batch_;
  stats::SequentialMonitor monitor_;
  int64_t last_step_ = 0;
  int64_t steps_in_batch_ = 0;
  double sum_percent_ = 0;
  std::optional<Abort> abort_;
};

}  // namespace isoloss::gate
