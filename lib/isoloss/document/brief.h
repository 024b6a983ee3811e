// Renders a result on one screen.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "isoloss/document/chart.h"
#include "isoloss/document/result.h"

namespace isoloss::document {

/// A brief report has at most this number of lines on a terminal of 80 columns
/// or more. On a narrower terminal the number grows in proportion.
inline constexpr size_t kBriefLines = 25;

/// The text says what the result means and shows its picture. It names each
/// check that gates and did not pass, with what to do about it. Then it says
/// what could have been seen, where the result holds, and how many warnings
/// there are. It ends with the line that scripts look for. The rest is left out
/// if it does not fit. No line is longer than style.width (at least 40), if
/// names leave room.
std::string RenderBrief(const Result& result, const TextStyle& style);

/// Renders several results. After one that passes because all is equal, the
/// next results of that kind get their first sentences and the line that
/// scripts look for.
std::string RenderBriefs(std::span<const Result> results,
                         const TextStyle& style);

}  // namespace isoloss::document
