// Compares what was done to two runs, as far as an arm declares it.
#pragma once

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// Returns whether both have recipes of one name that give every GEMM the same.
bool SameRecipe(const Run& a, const Run& b);

/// Returns whether rows travelled in the same way. Logs of schema version 1 do
/// not name their exchange, which had no options; they agree with any.
bool SameExchange(const Run& a, const Run& b);

/// Returns whether both compute in the same way: they have one exchange, and
/// recipes of any names that come to the same.
bool SameTreatment(const Run& a, const Run& b);

/// Returns whether both have equal perturbations of initial weights, or none.
bool SamePerturbation(const Run& a, const Run& b);

/// Returns whether `run` differs from a baseline by its perturbation alone, so
/// that chance makes the difference.
bool IsNullOf(const Run& run, const Run& baseline);

}  // namespace isoloss::compare
