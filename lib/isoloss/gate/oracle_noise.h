// Checks for level L2 the errors of FP32 tensors: as a whole, row by row and on
// average with their signs. Each check takes a third of policy.flip_alpha.
#pragma once

#include "isoloss/gate/policy.h"
#include "isoloss/gate/probe_rows.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// Checks the root mean square error of each tensor in each step.
Check CheckNoise(const Probes& probes, const Policy& policy);

/// That of the worst row of each, which a large tensor's mean would hide.
Check CheckRowNoise(const Probes& probes, const Policy& policy);

/// The mean error of the products, negative toward zero: a sum that is cut off
/// where it should be rounded is small beside its noise, but always on the same
/// side.
Check CheckSignedError(const Probes& probes, const Policy& policy);

}  // namespace isoloss::gate
