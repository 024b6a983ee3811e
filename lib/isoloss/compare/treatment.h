// What was done to a run, as far as an arm declares it.
#pragma once

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// Whether both have recipes of one name that give every GEMM the same.
bool SameRecipe(const Run& a, const Run& b);

/// Whether rows travelled in the same way. Logs of schema version 1 do not name
/// their exchange, which had no options; they agree with any.
bool SameExchange(const Run& a, const Run& b);

/// Whether both compute alike: one exchange, and recipes that come to the same,
/// whatever their names.
bool SameTreatment(const Run& a, const Run& b);

/// Whether their initial weights were perturbed alike, or not at all.
bool SamePerturbation(const Run& a, const Run& b);

/// Whether `run` differs from a baseline by its perturbation alone: what lies
/// between the two is chance.
bool IsNullOf(const Run& run, const Run& baseline);

}  // namespace isoloss::compare
