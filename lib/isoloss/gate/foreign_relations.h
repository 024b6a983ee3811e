// Finds losses of two arms that follow from each other, which training can't
// cause: another unit, an added term, a perplexity, or steps that count from
// another number.
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
/// Returns a relation that holds for all pairs. One arm's losses may be one
/// row later, a power, a multiple, or a constant more.
Relation RelationOf(const compare::Pairing& pairing);

/// Returns the difference in each row that both runs have, in percent of the
/// baseline's loss.
std::vector<double> PercentsOf(const compare::SeedPair& pair);

}  // namespace isoloss::gate
