// Says how elements that differ from predicted bits are alike: in one bit, in
// one tile, in one lane of a tensor core.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "isoloss/operations/deviations.h"

namespace isoloss::operations {

/// Returns sentences of at most 30 words that say how many of the `elements`
/// differ, in which pattern of bits and places; "" if none differs. The
/// elements that were compared must be all of the result, or drawn at random.
std::string PatternText(const Deviations& deviations, int64_t elements);

/// Returns whether elements differ in one bit alone, and that is no chance. So
/// it is false for a single element.
bool HaveOneBit(const Deviations& deviations);

/// Returns whether elements differ as those of a sick processor do: a few of
/// them, in one bit, or in places that share a tile, a row or a lane.
bool LookSick(const Deviations& deviations, int64_t elements);

/// Returns a sentence on a bit or a lane that several results share; "" if
/// there is none, or only one result has deviations. `elements` is the sum over
/// all results, and tiles begin at the first row and column of each.
std::string CommonPatternText(std::span<const Deviations* const> results,
                              int64_t elements);

}  // namespace isoloss::operations
