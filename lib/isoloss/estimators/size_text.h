// Reads and writes sizes as people write them: "16B@50B" is 16 billion
// parameters trained on 50 billion tokens.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/estimators/gap_cell.h"

namespace isoloss::estimators {

/// Parses "N@D" with numbers such as 1.3M, 16B, 14.8T, or "N-AM@D" for a model
/// of which a token uses M parameters. Without M a token uses all parameters,
/// but 2.4B of 16B and 37B of 671B, which are published models. "16B" and
/// "671B" alone stand for 16B@50B and 671B@14.8T.
/// Errors   ConfigError that quotes the text.
Size ParseSize(std::string_view text);

/// Returns a text such as "0.34M" or "16B", with three digits.
std::string NumberText(double value);
/// Returns a text such as "16B@50B", which ParseSize reads.
std::string SizeText(const Size& size);

}  // namespace isoloss::estimators
