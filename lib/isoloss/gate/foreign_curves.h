// Checks the curves of other programs' runs. A paired difference needs equal
// weights, batches and units, and values of its own steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// Is INCONCLUSIVE if the losses of the first step say that the two runs of a
/// seed are no pair. It also is if all losses of one run follow from those of
/// the other: times a constant, a constant more, as their power, or one row
/// later. Empty if the losses say nothing, and for pairs whose digests of
/// weights and batches are equal.
std::optional<Check> ApartAtFirstStep(const compare::Pairing& pairing,
                                      const Policy& policy);

/// Is INCONCLUSIVE if in some stretch the runs of a seed move up and down
/// together as seldom as runs of unequal batches. They must also part as far
/// as two seeds do. Empty for pairs with equal digests of weights and batches,
/// or if the digits show fewer than 120 moves.
std::optional<Check> OtherBatches(const compare::Pairing& pairing);

/// Warns of pairs that are further apart at the first step than rounding
/// explains, and of losses above 100.
std::vector<std::string> CurveWarnings(const compare::Pairing& pairing);

/// Says whether most runs of one arm are smoothed, but few of the second arm.
/// Then one curve lags wherever the loss falls.
bool IsOneArmSmoothed(const compare::Pairing& pairing);

/// Is INCONCLUSIVE if a value of the window includes steps before the window.
/// Then its mean is that of different steps, and its spread is too small.
std::optional<Check> SmoothedCurve(const compare::Pairing& pairing,
                                   const Policy& policy);

}  // namespace isoloss::gate
