// How wide the terminal is.
#pragma once

#include <optional>

namespace isoloss::cli {

/// Columns of the terminal that standard output goes to; empty if it goes to
/// none, or that does not say.
std::optional<int> TerminalWidth();

}  // namespace isoloss::cli
