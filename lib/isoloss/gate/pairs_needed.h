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

/// `rare_harm` allows for a harm of so many margins in this share of the seeds.
inline constexpr double kRareShare = 1.0 / 12;
inline constexpr double kRareMargins = 4;
/// If such harm brings the mean to the margin, the other seeds' mean is this
/// share of the margin.
inline constexpr double kRareMean = 1 - kRareShare * kRareMargins;

/// Returns the probability that so many pairs hold no harmed seed.
double RareHarmUnseen(int64_t pairs);

/// Returns the probability that a test of L5 at these options and `rare_harm`
/// both pass pairs without a true difference.
double ChanceOfPass(double sd, int64_t pairs,
                    const stats::EquivalenceOptions& options);

/// Says how to get enough evidence for a test whose interval crosses an end of
/// the margin. `foreign`: another program trained the runs.
std::string SeedsNeeded(const stats::Summary& differences,
                        const compare::FinalWindow& window,
                        const Policy& policy, const Looks* looks, bool foreign);

}  // namespace isoloss::gate
