// What a verdict on other programs' runs must say of them.
#pragma once

#include <string>
#include <vector>

#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// The formats of other programs' logs, each once, divided by commas; "" if
/// isoloss trained all runs.
std::string OriginOf(const compare::Pairing& pairing);

/// Judgement::compared_steps.
std::string ComparedSteps(const compare::Pairing& pairing);

/// What nobody recorded, how the logs' values were made, and what happened to
/// them as they were read. Empty if isoloss trained all runs.
std::vector<std::string> ForeignWarnings(const compare::Pairing& pairing);

/// How far the runs of a seed are apart at their first step.
std::vector<Measure> ForeignMeasures(const compare::Pairing& pairing);

}  // namespace isoloss::gate
