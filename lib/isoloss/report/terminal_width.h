// Finds the width and the colours of the terminal.
#pragma once

#include <optional>

#include "isoloss/document/chart.h"

namespace isoloss::report {

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

/// Of text that goes to standard output: its terminal's width within limits, 80
/// columns for files; colours where they show and NO_COLOR does not forbid
/// them. `ascii`: 7-bit characters, whatever the locale says.
document::TextStyle TerminalStyle(bool ascii);

/// Of sentences that go to this file descriptor: its terminal's width within
/// limits, 100 columns for files.
document::TextStyle ProseStyle(int descriptor);

}  // namespace isoloss::report
