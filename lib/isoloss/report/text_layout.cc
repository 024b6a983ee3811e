#include "isoloss/report/text_layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace isoloss::report {

std::string Wrap(const std::string& text, size_t used, size_t indent,
                 const TextStyle& style) {
  const size_t width = static_cast<size_t>(style.width);
  std::string wrapped;
  size_t column = used;
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const size_t length = end - start;
    const bool first = wrapped.empty();
    if (!first && column + 1 + length > width) {
      wrapped += fmt::format("\n{:{}}", "", indent);
      column = indent;
    } else if (!first) {
      wrapped += ' ';
      ++column;
    }
    wrapped.append(text, start, length);
    column += length;
    start = end + 1;
  }
  return wrapped;
}

std::string Heading(const std::string& text, const TextStyle& style) {
  return fmt::format("\n{}\n", Paint(text, kBold, style));
}

std::string FieldLine(const char* name, const std::string& value,
                      const TextStyle& style) {
  constexpr size_t kIndent = 13;
  if (value.empty()) return "";
  return fmt::format("  {:<{}}{}\n", name, kIndent - 2,
                     Wrap(value, kIndent, kIndent, style));
}

}  // namespace isoloss::report
