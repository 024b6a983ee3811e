// What the terminal can do.
#pragma once

#include <optional>

namespace isoloss::cli {

/// Columns and rows of the terminal that this file descriptor goes to; empty if
/// it goes to none, or that does not say.
std::optional<int> TerminalWidth(int descriptor = 1);
std::optional<int> TerminalHeight(int descriptor = 1);

/// Is it a terminal that moves its cursor and draws colours? TERM=dumb says
/// that it does neither.
bool KnowsEscapes(int descriptor);

/// Does the locale ask for another encoding than UTF-8, such as LC_ALL=C? One
/// that is not set at all, as in a bare container, does not (as in PEP 538).
bool LocaleIsAscii();

}  // namespace isoloss::cli
