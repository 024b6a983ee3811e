// A map of recipes under stress, for people and for programs.
#pragma once

#include <string>

#include "isoloss/stress/stress_map.h"

namespace isoloss::report {

/// A row for each mode, a column for each arm: diverged runs and the gap.
/// Below it, which known-bad recipes are told apart from the good one.
std::string RenderStress(const stress::StressMap& map);

std::string RenderStressJson(const stress::StressMap& map);

/// Cells in the colour of what happened: divergence, a gap whose interval lies
/// above 0, or neither.
std::string RenderStressSvg(const stress::StressMap& map);

}  // namespace isoloss::report
