// Prints text for people, wrapped to the width of the terminal.
#pragma once

#include <cstdio>
#include <string>

namespace isoloss::cli {

/// Prints `text` with wrapped sentences. Rows of tables stay as they are.
void PrintProse(std::FILE* file, const std::string& text);

}  // namespace isoloss::cli
