// Finds blocks that run over the ends of groups: mistakes of operands that no
// single group shows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/operations/explanation.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// Joins the rows of all groups to one operand, if they follow each other in
/// memory. Returns nothing for fewer than two groups.
std::optional<Side> JoinedSide(const std::vector<const Side*>& sides);

/// Returns trials of blocks that begin with the first group and run on, along
/// the recipe's axis or the other one. `left` and `right` name the sides.
std::vector<Trial> TrialsOfJoinedBlocks(const Product& product,
                                        const std::string& left,
                                        const std::string& right);
/// Returns the same trials for codes of one operand; all must outlive them.
std::vector<Trial> TrialsOfJoinedBlocks(const std::vector<const Side*>& sides,
                                        const std::string& name,
                                        const Codes& codes,
                                        const Scales& scales, CodePart part);

}  // namespace isoloss::operations
