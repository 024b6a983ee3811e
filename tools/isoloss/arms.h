// Which arms of an experiment a command works on: all of them, or where it can
// take only one, the candidate.
#pragma once

#include <string>
#include <vector>

#include "isoloss/train/experiment.h"

namespace isoloss::cli {

/// Ends the help of `--arm` of a command that takes all arms, or one.
inline constexpr const char* kAllArmsHelp = " (default: every arm of the file)";
inline constexpr const char* kOneArmHelp =
    " (default: the arm beside the baseline, which is the first; required if "
    "there are several)";

/// The arm of that name, or all arms in the order of the file if it is empty.
/// Errors   ConfigError that lists the arms if there is none of that name.
std::vector<const train::Arm*> ArmsNamed(const train::Experiment& experiment,
                                         const std::string& name);

/// The arm of that name. If it is empty: the candidate, which is the arm that
/// is not the first, or the only arm there is.
/// Errors   as ArmsNamed; ConfigError if there are several candidates.
const train::Arm& OneArm(const train::Experiment& experiment,
                         const std::string& name);

}  // namespace isoloss::cli
