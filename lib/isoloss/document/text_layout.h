// Puts the parts of a report on lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/chart.h"

namespace isoloss::document {

/// Breaks text at spaces so that lines fit. Lines after the first start with
/// `indent` spaces. `used` columns of the first line are taken.
std::string Wrap(const std::string& text, size_t used, size_t indent,
                 const TextStyle& style);

/// Returns at most `most` lines, the first without indent. A last line that
/// ends in "..." says that text was left out. A word that is longer than a
/// line goes on in the next. A character counts as many columns as it has
/// bytes, so that none is wider than it counts. No text gives no lines.
std::vector<std::string> WrappedLines(const std::string& text, size_t used,
                                      size_t indent, size_t most,
                                      const TextStyle& style);

/// Wraps every line, which goes on below its own beginning. A line with two
/// spaces after its beginning is a row of a table, and stays as it is.
std::string WrapProse(const std::string& text, const TextStyle& style);

/// Cuts `text` to at most `bytes` bytes (at least 3) of whole UTF-8
/// characters. A text that is cut ends in "...".
std::string Shortened(std::string_view text, size_t bytes);

/// Returns an empty line and the bold title of a section.
std::string Heading(const std::string& text, const TextStyle& style);

/// Returns a line that begins with a name of at most ten characters and is
/// wrapped after it; "" for no value.
std::string FieldLine(const char* name, const std::string& value,
                      const TextStyle& style);

}  // namespace isoloss::document
