// Compares the end of a run with that of good runs of another program, which
// need not be deterministic.
#pragma once

#include <cstddef>
#include <optional>

#include "isoloss/compare/final_window.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// The spread of fewer good runs is no more than a guess.
inline constexpr size_t kFewestGoodRuns = 3;

/// Is the candidate's mean loss over the final window that of the good runs of
/// evidence.benign within the margin? There are n runs of the candidate and g
/// good runs, including the ensemble's reference, of standard deviation s:
///
///   mean(candidate) - mean(good) -+ (t_{1-alpha,g-1} s sqrt(1/n + 1/g) + r),
///
/// all in percent of the reference; r is what the logs' digits hide. s is the
/// candidate's standard deviation if n > 1 and that is larger. A single
/// candidate run is assumed to spread as the good runs do. The seeds of runs
/// do not count: good runs of one seed show what chance does within it, and
/// good runs of several seeds show what chance does between them.
///
/// Special  empty for `precision`, whose pairs are judged, and without an
///          ensemble of another program's runs; INVALID if it
///          is of other runs than may judge these; INCONCLUSIVE if it has
///          fewer than three or lacks a step of the window, or with a margin
///          in tokens.
std::optional<Check> AgainstGoodRuns(const Evidence& evidence,
                                     const compare::FinalWindow& window,
                                     const Policy& policy, double alpha);

}  // namespace isoloss::gate
