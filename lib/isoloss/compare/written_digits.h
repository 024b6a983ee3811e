// Are two curves the same, as far as their logs' digits tell?
#pragma once

#include <optional>

#include "isoloss/compare/first_divergence.h"

namespace isoloss::compare {

/// The first common step at which two losses differ by more than the rounding
/// of both logs explains (runlog::Origin::loss_half_unit); empty if none does.
///
/// Special  NaN equals NaN, and an infinity itself.
std::optional<Divergence> FirstWrittenDivergence(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate);

/// Half a unit of both logs' losses, together: what lies below can't be seen.
double WrittenResolution(const runlog::RunLog& a, const runlog::RunLog& b);

/// Why the curve does not say of single steps what they were; "" if it does.
std::string WhyNotStepByStep(const runlog::RunLog& log);

}  // namespace isoloss::compare
