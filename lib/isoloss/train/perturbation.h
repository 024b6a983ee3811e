// Makes runs that differ from runs of the same recipe by next to nothing: the
// resulting difference of two such runs is chance.
#pragma once

#include <cstdint>
#include <string>

#include "isoloss/model/parameters.h"
#include "isoloss/train/config.h"

namespace isoloss::train {

/// Describes the arm's perturbation for the log: "one_ulp, draw 1"; "" if it
/// has none.
std::string DescribePerturbation(const Arm& arm);

/// Applies the arm's perturbation, if it has one, to the initial FP32 weights
/// of a run (of a process: its experts').
///
/// one_ulp: the bits of each value w of each parameter, taken as an integer,
/// grow or shrink by 1. |w| thus changes by one unit in its last place. The
/// direction is bit 0 of CounterRng(seed,
/// StreamId("perturb/one_ulp/<draw>/<parameter>")) at the value's place in the
/// whole parameter. A weight of 0 stays.
/// Exact    depends on the arm's perturbation, the seed and the model; not on
///          threads, ranks or processes.
void PerturbWeights(const Arm& arm, uint64_t seed,
                    model::ParameterSet& weights);

}  // namespace isoloss::train
