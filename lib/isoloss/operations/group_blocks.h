// Blocks that run over the ends of groups: mistakes of operands that no group
// alone shows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/operations/explanation.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// The rows of all groups as one operand, which they are if they lie behind
/// each other. Nothing of fewer than two groups.
std::optional<Side> JoinedSide(const std::vector<const Side*>& sides);

/// Blocks down the columns that begin with the first group and run on, and such
/// blocks where rows' own are due. `left` and `right`: names of the sides.
std::vector<Trial> TrialsOfJoinedBlocks(const Product& product,
                                        const std::string& left,
                                        const std::string& right);
/// The same in codes of one operand; all must outlive them.
std::vector<Trial> TrialsOfJoinedBlocks(const std::vector<const Side*>& sides,
                                        const std::string& name,
                                        const Codes& codes,
                                        const Scales& scales, CodePart part);

}  // namespace isoloss::operations
