// Advises how many seed pairs a test of level L5 needs.
#pragma once

#include <cstdint>
#include <string>

#include "isoloss/compare/final_window.h"
#include "isoloss/gate/looks.h"
#include "isoloss/gate/policy.h"
#include "isoloss/stats/equivalence.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {

/// Returns the options of all tests of level L5, and of the figures on their
/// power. `alpha` is the nominal level of this look at the seeds.
stats::EquivalenceOptions OptionsOf(const Policy& policy, double alpha);

/// Says how to get enough evidence for a test whose interval crosses an end of
/// the margin. `foreign`: another program trained the runs.
std::string SeedsNeeded(const stats::Summary& differences,
                        const compare::FinalWindow& window,
                        const Policy& policy, const Looks* looks, bool foreign);

}  // namespace isoloss::gate
