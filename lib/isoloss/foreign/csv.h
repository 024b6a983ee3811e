// Tells a table with named columns from other text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isoloss::foreign {

/// Returns the names of the columns if the text is a table, with or without a
/// step. In a table, the second line has as many cells as the first, and
/// numbers in columns where the first line has none.
std::vector<std::string> CsvColumns(std::string_view text);

/// Returns whether the first two lines hold only numbers, equally many in each.
bool IsNamelessCsv(std::string_view text);

}  // namespace isoloss::foreign
