// Checks the curves of other programs' runs: a paired difference needs equal
// weights, batches and units, and values of its steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// INCONCLUSIVE if the losses of the first step say that the two runs of a seed
/// are no pair, or if all of one follow from those of the other: times a
/// constant, a constant more, as their power, or one row later. Empty if they
/// say nothing, and of pairs whose digests of weights and batches are equal.
std::optional<Check> ApartAtFirstStep(const compare::Pairing& pairing,
                                      const Policy& policy);

/// INCONCLUSIVE if there is a stretch in which the two runs of a seed move up
/// and down together as seldom as runs of unequal batches, and part as far as
/// two seeds. Empty of fewer than 120 moves that the digits show, and of pairs
/// whose digests of weights and batches are equal.
std::optional<Check> OtherBatches(const compare::Pairing& pairing);

/// Warns of pairs that are further apart at the first step than rounding
/// explains, and of losses above 100.
std::vector<std::string> CurveWarnings(const compare::Pairing& pairing);

/// Says whether most runs of one arm are smoothed, but few of the second arm:
/// then one curve lags wherever the loss falls.
bool IsOneArmSmoothed(const compare::Pairing& pairing);

/// INCONCLUSIVE if a value of the window holds steps before it: its mean is
/// that of other steps, and its spread too small.
std::optional<Check> SmoothedCurve(const compare::Pairing& pairing,
                                   const Policy& policy);

}  // namespace isoloss::gate
