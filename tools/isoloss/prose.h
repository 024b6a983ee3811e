// Text for people, wrapped to the width of the terminal.
#pragma once

#include <cstdio>
#include <string>

namespace isoloss::cli {

/// Prints it with sentences wrapped; rows of tables stay.
void PrintProse(std::FILE* file, const std::string& text);

}  // namespace isoloss::cli
