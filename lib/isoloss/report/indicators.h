// Leading indicators of divergence, for people and for programs.
#pragma once

#include <string>

#include "isoloss/indicators/judge.h"

namespace isoloss::report {

/// A row for each alarm rule: doubling times, announcements, false alarms.
std::string RenderIndicators(const indicators::IndicatorStatement& statement);

/// One JSON object, with all runs; numbers that are not there are null.
std::string RenderIndicatorsJson(
    const indicators::IndicatorStatement& statement);

/// A panel for each rule: how far the judged runs are from its level over the
/// steps, those that diverged in red up to and behind that step.
std::string RenderIndicatorsSvg(
    const indicators::IndicatorStatement& statement);

}  // namespace isoloss::report
