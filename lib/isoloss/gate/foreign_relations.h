// Losses of two arms that follow from each other, which no training does:
// another unit, an added term, a perplexity, a count that begins elsewhere.
#pragma once

#include <string>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::gate {

/// Describes a relation that holds between the losses of two arms at every
/// step; the text is empty if no relation holds.
struct Relation {
  std::string text;
  std::string next;
};
/// Of all pairs: one row later, to the power of, times a constant, or a
/// constant more.
Relation RelationOf(const compare::Pairing& pairing);

/// Returns the difference in each row that both runs have, in percent of the
/// baseline's loss.
std::vector<double> PercentsOf(const compare::SeedPair& pair);

}  // namespace isoloss::gate
