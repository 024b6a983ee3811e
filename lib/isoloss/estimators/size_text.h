// Sizes as people write them: "16B@50B" is 16 billion parameters trained on 50
// billion tokens.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/estimators/gap_cell.h"

namespace isoloss::estimators {

/// "N@D" with numbers such as 1.3M, 16B, 14.8T, or "16B" and "671B" alone,
/// which stand for 16B@50B and 671B@14.8T. Errors   ConfigError that says what
/// was given.
Size ParseSize(std::string_view text);

/// "0.34M", "16B": three digits.
std::string NumberText(double value);
/// "16B@50B".
std::string SizeText(const Size& size);

}  // namespace isoloss::estimators
