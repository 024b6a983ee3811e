// A judgement as text for people.
#pragma once

#include <string>

#include "isoloss/gate/verdict.h"
#include "isoloss/report/chart.h"

namespace isoloss::report {

/// The summary that ends a run: what was compared, a table of both arms, their
/// loss curves and difference, measures, checks, warnings, the verdict. Renders
/// only; every number was computed before.
std::string RenderTerminal(const gate::Judgement& judgement,
                           const TextStyle& style);

}  // namespace isoloss::report
