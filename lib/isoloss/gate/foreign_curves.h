// What the curves of other programs' runs say of themselves: a paired
// difference needs equal weights, batches and units, and values of its steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// INCONCLUSIVE if the losses of the first step say that the two runs of a seed
/// are no pair, or if all of one are a constant times those of the other. Empty
/// if they say nothing, and of pairs whose digests of weights and batches are
/// equal.
std::optional<Check> ApartAtFirstStep(const compare::Pairing& pairing,
                                      const Policy& policy);

/// Of pairs that are further apart at the first step than rounding explains.
std::vector<std::string> FirstStepWarnings(const compare::Pairing& pairing);

/// INCONCLUSIVE if a value of the window holds steps before it: its mean is
/// that of other steps, and its spread too small.
std::optional<Check> SmoothedCurve(const compare::Pairing& pairing,
                                   const Policy& policy);

}  // namespace isoloss::gate
