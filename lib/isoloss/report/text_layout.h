// How the parts of a report are laid out on lines.
#pragma once

#include <cstddef>
#include <string>

#include "isoloss/report/chart.h"

namespace isoloss::report {

/// Breaks text at spaces so that lines fit; lines after the first start with
/// `indent` spaces. `used` columns of the first line are taken.
std::string Wrap(const std::string& text, size_t used, size_t indent,
                 const TextStyle& style);

/// An empty line, and the bold title of a section.
std::string Heading(const std::string& text, const TextStyle& style);

/// A line that begins with a name of at most ten characters, wrapped behind
/// it; "" for no value.
std::string FieldLine(const char* name, const std::string& value,
                      const TextStyle& style);

}  // namespace isoloss::report
