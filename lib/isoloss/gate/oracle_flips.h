// Checks for level L2 how many values of tensors with fewer bits than FP32
// were rounded the other way.
#pragma once

#include "isoloss/gate/policy.h"
#include "isoloss/gate/probe_rows.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// A tensor that sums exactly is expected to flip nowhere. This mean is added,
/// so that a single flip that no noise model foresees fails no check.
inline constexpr double kUnforeseenFlips = 1;

/// Checks the sum of each tensor's flips and the sum of all, which finds small
/// errors that occur everywhere. docs/gate.md has the limits of these checks.
/// Each of the three takes a third of policy.flip_alpha.
Check CheckFlips(const Probes& probes, const Policy& policy);

/// Checks each tensor in each step of each case, which finds an error in one
/// place.
Check CheckBursts(const Probes& probes, const Policy& policy);

/// Do the flips of products fall to either side alike? A sum that is cut off
/// where it should be rounded lies nearer to zero.
Check CheckFlipSides(const Probes& probes, const Policy& policy);

}  // namespace isoloss::gate
