// A judgement as text for people.
#pragma once

#include <string>

#include "isoloss/document/chart.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// Everything there is to say: what was compared, a table of both arms, their
/// loss curves and difference, measures, checks, warnings, the verdict. Renders
/// only; every number was computed before.
std::string RenderTerminal(const gate::Judgement& judgement,
                           const document::TextStyle& style);

// Parts of it that RenderBrief shows, too.

/// Two versions of one arm are "approved" and "ARM now".
gate::Judgement WithSides(gate::Judgement judgement);

/// The paired loss difference of each step; its title names both arms.
document::Chart DifferenceChart(const gate::Judgement& judgement);
std::string DifferenceTitle(const gate::Judgement& judgement);

/// Why, on the line of the verdict: "9 checks pass; no evidence: L2".
std::string VerdictReasons(const gate::Judgement& judgement);

/// Of its word.
const char* OutcomeColor(gate::Outcome outcome);

}  // namespace isoloss::report
