// What a ladder says, for people and for programs.
#pragma once

#include <string>

#include "isoloss/scaling/ladder.h"

namespace isoloss::report {

/// Gaps, predictions and verdicts of each arm.
std::string RenderLadder(const scaling::LadderStatement& statement);

/// One JSON object; numbers that are not there are null.
std::string RenderLadderJson(const scaling::LadderStatement& statement);

/// The gap of each arm over the operations of a training, with the measured
/// cells, all forms and their predictions at the sizes that were asked for.
std::string RenderLadderSvg(const scaling::LadderStatement& statement);

}  // namespace isoloss::report
