// Checks for level L2 the errors of FP32 tensors: of whole tensors, of rows,
// and on average with their signs. Each check takes a third of
// policy.flip_alpha.
#pragma once

#include "isoloss/gate/policy.h"
#include "isoloss/gate/probe_rows.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// Compares the root mean square error of each tensor in each step with FP32
/// noise.
Check CheckNoise(const Probes& probes, const Policy& policy);

/// Checks the error of the worst row of each tensor, which a large tensor's
/// mean would hide.
Check CheckRowNoise(const Probes& probes, const Policy& policy);

/// Checks the mean error of the products, negative toward zero. A sum that is
/// cut off where it should be rounded has a small error beside its noise, but
/// always to the same side.
Check CheckSignedError(const Probes& probes, const Policy& policy);

}  // namespace isoloss::gate
