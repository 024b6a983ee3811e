// How the parts of a report are laid out on lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/chart.h"

namespace isoloss::document {

/// Breaks text at spaces so that lines fit; lines after the first start with
/// `indent` spaces. `used` columns of the first line are taken.
std::string Wrap(const std::string& text, size_t used, size_t indent,
                 const TextStyle& style);

/// The same as lines without indent before the first, `most` of them; what is
/// left out is marked by "..." at the end of the last. A word that is longer
/// than a line goes on in the next. A character counts as many columns as it
/// has bytes, so that none is wider than it counts. Empty for no text.
std::vector<std::string> WrappedLines(const std::string& text, size_t used,
                                      size_t indent, size_t most,
                                      const TextStyle& style);

/// Every line wrapped, going on where it began. A line with two spaces behind
/// its beginning is a row of a table, and stays as it is.
std::string WrapProse(const std::string& text, const TextStyle& style);

/// `text` in at most so many bytes (at least 3) of whole UTF-8 characters; if
/// it is longer, with "..." in place of its end.
std::string Shortened(std::string_view text, size_t bytes);

/// An empty line, and the bold title of a section.
std::string Heading(const std::string& text, const TextStyle& style);

/// A line that begins with a name of at most ten characters, wrapped behind
/// it; "" for no value.
std::string FieldLine(const char* name, const std::string& value,
                      const TextStyle& style);

}  // namespace isoloss::document
