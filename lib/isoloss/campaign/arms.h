// Finds the arms of an experiment that a command works on: all of them, or, if
// it can take only one, the candidate.
#pragma once

#include <string>
#include <vector>

#include "isoloss/train/experiment.h"

namespace isoloss::campaign {

/// Returns the arm of that name, or all arms in the order of the file if `name`
/// is empty.
/// Errors   ConfigError that lists the arms if there is none of that name.
std::vector<const train::Arm*> ArmsNamed(const train::Experiment& experiment,
                                         const std::string& name);

/// Returns the arm of that name. If `name` is empty, returns the candidate
/// (verdicts::RolesOf), or the only arm there is.
/// Errors   as ArmsNamed; ConfigError if there are several candidates.
const train::Arm& OneArm(const train::Experiment& experiment,
                         const std::string& name);

}  // namespace isoloss::campaign
