// Finds the width and the colours of the terminal.
#pragma once

#include <optional>

#include "isoloss/document/chart.h"

namespace isoloss::report {

/// Returns the columns and rows of the terminal to which this file descriptor
/// goes; empty if it goes to no terminal, or the terminal does not say.
std::optional<int> TerminalWidth(int descriptor = 1);
std::optional<int> TerminalHeight(int descriptor = 1);

/// Returns whether it is a terminal that moves its cursor and draws colours.
/// TERM=dumb says that it does neither.
bool KnowsEscapes(int descriptor);

/// Returns whether the locale asks for an encoding that is not UTF-8, such as
/// LC_ALL=C. A locale that is not set at all, as in a bare container, does not
/// ask for it (as in PEP 538).
bool LocaleIsAscii();

/// Returns the style of text on standard output: its terminal's width within
/// limits, and 80 columns for files. It has colours if the terminal shows them
/// and NO_COLOR does not forbid them. `ascii`: 7-bit characters, whatever the
/// locale says.
document::TextStyle TerminalStyle(bool ascii);

/// Returns the style of sentences for this file descriptor: its terminal's
/// width within limits, and 100 columns for files.
document::TextStyle ProseStyle(int descriptor);

}  // namespace isoloss::report
