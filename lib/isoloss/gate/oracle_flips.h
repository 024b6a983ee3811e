// Checks for level L2 the roundings that fell the other way, in tensors of
// fewer bits than FP32.
#pragma once

#include "isoloss/gate/policy.h"
#include "isoloss/gate/probe_rows.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// A tensor that sums exactly is expected to flip nowhere; what no model of its
/// noise foresees must not weigh more than anything else.
inline constexpr double kUnforeseenFlips = 1;

/// The sums of each tensor's flips, and of all: what is a little wrong
/// everywhere. Docs/gate.md has the limits of these checks; each of the three
/// takes a third of policy.flip_alpha.
Check CheckFlips(const Probes& probes, const Policy& policy);

/// Each tensor in each step of each case: what is wrong in one of them only.
Check CheckBursts(const Probes& probes, const Policy& policy);

/// Do the flips of products fall to either side alike? A sum that is cut off
/// where it should be rounded lies nearer to zero.
Check CheckFlipSides(const Probes& probes, const Policy& policy);

}  // namespace isoloss::gate
