// Compares one run's statistics with those of good runs, for levels L3 and L4.
// One threshold holds for all statistics.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/stats/max_t.h"

namespace isoloss::gate {

/// Names one of the statistics, which are in the order in which a fault would
/// show.
struct NullStatistic {
  std::string name;     ///< "gradient norm of wq"
  std::string subject;  ///< the tensor or parameter; "" for a whole run
  int64_t step = 0;
  /// Deviations up to this size are harmless even if all good runs agree.
  double floor = 0;
};

/// Holds the statistics of one judged run.
struct Observed {
  std::string label;  ///< "seed 3"
  std::vector<double> values;
};

/// Judges all of `observed` against the members' values, [members,
/// statistics], and appends the check `name`. It fails if any statistic of any
/// run lies beyond the threshold. It is inconclusive if none does but the
/// threshold is above policy.null_limit_ceiling. The threshold is at least
/// `headroom` times the largest deviation of a member. Returns the result of
/// the run furthest out.
/// Requires at least policy.min_members members, all finite, and one run.
stats::MaxTResult JudgeAgainstNull(std::string_view name,
                                   const std::vector<NullStatistic>& statistics,
                                   const std::vector<double>& members,
                                   const std::vector<Observed>& observed,
                                   double headroom, const Policy& policy,
                                   LevelFindings& found);

/// Checks that evidence is what the level needs. It is INVALID with the first
/// of `findings`, or else a pass, whose text is `promise`.
Check EvidenceCheck(
    std::string_view name, std::vector<std::string> findings,
    std::string evidence,
    std::string_view promise = "the evidence is of the judged configuration");

/// Is INCONCLUSIVE, because there are fewer members than the policy asks for.
Check TooFewMembers(const NullEnsemble& ensemble, size_t usable,
                    const Policy& policy);

/// Returns the members that may judge the pairing. In a seeds ensemble they
/// are of different seeds than the judged pairs, lest a pair be measured
/// against itself.
std::vector<const runlog::EnsembleMember*> UsableMembers(
    const NullEnsemble& ensemble, const compare::Pairing& pairing);

}  // namespace isoloss::gate
