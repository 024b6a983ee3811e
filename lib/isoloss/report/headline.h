// The sentence that says what an outcome means, and words that other sentences
// of a verdict share with it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// The outcome's meaning with the figure that decided (Reading::headline).
std::string HeadlineOf(const gate::Judgement& judgement);

/// The checks that made the outcome what it is.
std::vector<const gate::Check*> Deciding(const gate::Judgement& judgement);

/// Whether the check found that all losses of one arm follow from the other's,
/// as in another unit: that explains what others found.
bool TellsRelation(const gate::Check& check);

/// "1 step", "2 steps".
std::string Count(int64_t count, std::string_view what);

/// "oracle" (L2), with the quotes.
std::string LevelText(const gate::LevelOutcome& level);

}  // namespace isoloss::report
