// The end of a run against that of good runs of another program, which need not
// be deterministic.
#pragma once

#include <optional>

#include "isoloss/compare/final_window.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/stats/equivalence.h"

namespace isoloss::gate {

/// Is the candidate's mean loss over the final window that of the good runs of
/// evidence.benign within the margin? With n runs of the candidate and g good
/// ones, the ensemble's reference among them, of standard deviation s:
///
///   mean(candidate) - mean(good) -+ t_{1-alpha,g-1} s sqrt(1/n + 1/g),
///
/// all in percent of the reference. What a run is paired with does not count:
/// good runs of one seed show what chance does within it, those of several
/// seeds what chance does between them.
///
/// Special  empty without an ensemble of another program's runs;
///          INCONCLUSIVE if it has fewer than three or lacks a step of the
///          window.
std::optional<Check> AgainstGoodRuns(const Evidence& evidence,
                                     const compare::FinalWindow& window,
                                     const stats::EquivalenceOptions& options);

}  // namespace isoloss::gate
