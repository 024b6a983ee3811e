#include "roff_text.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "isoloss/base/printable.h"

namespace isoloss::cli {
namespace {

/// The code point at `text[at]`, past which `at` moves. The text is UTF-8.
uint32_t NextCodePoint(std::string_view text, size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80) return first;
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  uint32_t point = first & (0x3FU >> more);
  for (int i = 0; i < more; ++i) {
    point = point << 6U | (static_cast<unsigned char>(text[at++]) & 0x3FU);
  }
  return point;
}

/// Of one ASCII character that means something else to roff, or would be drawn
/// as another one.
const char* EscapeOf(char c) {
  switch (c) {
    case '\\':
      return "\\(rs";
    case '-':
      return "\\-";
    case '\'':
      return "\\(aq";
    case '"':
      return "\\(dq";
    case '`':
      return "\\(ga";
    case '^':
      return "\\(ha";
    case '~':
      return "\\(ti";
    default:
      return nullptr;
  }
}

}  // namespace

std::string RoffText(const std::string& text) {
  const std::string printable = PrintableLines(text);
  std::string roff;
  bool at_begin = true;
  for (size_t at = 0; at < printable.size();) {
    const uint32_t point = NextCodePoint(printable, at);
    const char c = static_cast<char>(point);
    if (point >= 0x80) {
      roff += fmt::format("\\[u{:04X}]", point);
    } else if (const char* escape = EscapeOf(c)) {
      roff += escape;
    } else {
      // A line that begins with a full stop is a request.
      if (at_begin && c == '.') roff += "\\&";
      roff += c;
    }
    at_begin = point == '\n';
  }
  return roff;
}

}  // namespace isoloss::cli
