// Collects the facts that a verdict on other programs' runs must state.
#pragma once

#include <string>
#include <vector>

#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// Lists the formats of other programs' logs, each once, divided by commas;
/// returns "" if isoloss trained all runs.
std::string OriginOf(const compare::Pairing& pairing);

/// Returns Judgement::compared_steps.
std::string ComparedSteps(const compare::Pairing& pairing);

/// Says which facts nobody recorded, how the logs' values were made, and how
/// reading changed them. Returns nothing if isoloss trained all runs.
std::vector<std::string> ForeignWarnings(const compare::Pairing& pairing);

/// Says how far the runs of a seed are apart at their first step.
std::vector<Measure> ForeignMeasures(const compare::Pairing& pairing);

}  // namespace isoloss::gate
