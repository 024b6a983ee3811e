// A judgement on one screen.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "isoloss/document/chart.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// Lines of a brief report on a terminal of 80 columns or more. Narrower ones
/// get as many more as they are narrower.
inline constexpr size_t kBriefLines = 25;

/// What the verdict means, the difference along training, the checks that did
/// not pass with what to do about them, what could have been seen, where it
/// holds, the first warning and how many there are, and the line that scripts
/// look for. What does not fit is left to RenderTerminal, but each check that
/// gates and did not pass is named. Long names are cut. No line is longer than
/// style.width (at least 40).
std::string RenderBrief(const gate::Judgement& judgement,
                        const document::TextStyle& style);

/// Several. After one arm that passes because all is equal, others of that kind
/// get their first sentences and the line that scripts look for.
std::string RenderBriefs(std::span<const gate::Judgement> judgements,
                         const document::TextStyle& style);

}  // namespace isoloss::report
