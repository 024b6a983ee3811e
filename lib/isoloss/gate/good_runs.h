// The end of a run against that of good runs of another program, which need not
// be deterministic.
#pragma once

#include <cstddef>
#include <optional>

#include "isoloss/compare/final_window.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// A spread of fewer is no more than a guess.
inline constexpr size_t kFewestGoodRuns = 3;

/// Is the candidate's mean loss over the final window that of the good runs of
/// evidence.benign within the margin? With n runs of the candidate and g good
/// ones, the ensemble's reference among them, of standard deviation s:
///
///   mean(candidate) - mean(good) -+ (t_{1-alpha,g-1} s sqrt(1/n + 1/g) + r),
///
/// all in percent of the reference; r is what the logs' digits hide. s is the
/// candidate's standard deviation if n > 1 and that is larger; of one run it is
/// an assumption that it spreads as the good ones do. What a run is paired with
/// does not count: good runs of one seed show what chance does within it, those
/// of several seeds what chance does between them.
///
/// Special  empty without an ensemble of another program's runs;
///          INVALID if it is of other runs than may judge these; INCONCLUSIVE
///          if it has fewer than three or lacks a step of the window, or with a
///          margin in tokens.
std::optional<Check> AgainstGoodRuns(const Evidence& evidence,
                                     const compare::FinalWindow& window,
                                     const Policy& policy, double alpha);

}  // namespace isoloss::gate
