// Compares the candidate's loss with the baseline's along the whole training.
#pragma once

#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

struct Evidence;

/// Makes the check `trajectory` of level L5. It compares the mean difference
/// in each tenth of the training, and that of each seed, with limits. The
/// limits widen where the baseline's loss falls fast.
/// docs/gate.md has the limits and where they come from. `alpha` is that of
/// the tenths together.
/// Requires runs that L0 found sound.
Check JudgeTrajectory(const Evidence& evidence, const Policy& policy,
                      double alpha);

}  // namespace isoloss::gate
