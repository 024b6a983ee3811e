// Makes the tokens of a synthetic source.
#pragma once

#include <cstdint>
#include <vector>

#include "isoloss/corpus/source.h"

namespace isoloss::corpus {

/// Returns the tokens of `source`, by the formula of SyntheticSource. The two
/// tokens before the first count as 0.
std::vector<uint32_t> SyntheticTokens(const SyntheticSource& source);

}  // namespace isoloss::corpus
