// Tells people and CI systems of a verdict.
#pragma once

#include <string>

#include "isoloss/document/chart.h"
#include "isoloss/document/result.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// Returns sentences, checks and the difference along training. Every number
/// was computed before. A check that does not gate is kSkipped, or kNoticed if
/// it did not pass; a level without any check is a skipped check. An INVALID
/// verdict holds nowhere, and could have seen nothing. `file` is the file that
/// the verdict is about, as the repository names it; may be empty.
document::Result ResultOf(const gate::Judgement& judgement, std::string file);

/// Returns a shorter result for one screen. Long names are cut to a quarter of
/// its width.
document::Result BriefResultOf(const gate::Judgement& judgement,
                               const document::TextStyle& style);

/// Gives two versions of one arm the names "approved" and "ARM now".
gate::Judgement WithSides(gate::Judgement judgement);

/// Draws the paired loss difference of each step; its title names both arms.
document::Chart DifferenceChart(const gate::Judgement& judgement);

}  // namespace isoloss::report
