#include "isoloss/base/printable.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace isoloss {
namespace {

/// The code point at the front of `text` and its bytes; 0 bytes if it is no
/// UTF-8 (Unicode 15, table 3-7).
struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;
};

CodePoint FirstOf(std::string_view text) {
  const auto byte = [&text](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return {};
  uint32_t value = lead & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3F);
  }
  const uint32_t lowest = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  const bool is_surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < lowest || value > 0x10FFFF || is_surrogate) return {};
  return {value, bytes};
}

/// Returns whether `value` marks a direction or ends a line or a paragraph.
bool IsFormatControl(uint32_t value) {
  return value == 0x061C || (value >= 0x200E && value <= 0x200F) ||
         (value >= 0x2028 && value <= 0x202E) ||
         (value >= 0x2066 && value <= 0x2069) || value == 0xFEFF;
}

std::string Escaped(std::string_view text, bool keep_lines) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const CodePoint first = FirstOf(text);
    const size_t bytes = first.bytes == 0 ? 1 : first.bytes;
    const auto lead = static_cast<unsigned char>(text.front());
    if (lead == '\n' || lead == '\t') {
      if (keep_lines) {
        shown += text.front();
      } else {
        shown += lead == '\n' ? "\\n" : "\\t";
      }
    } else if (first.bytes == 0 || lead < 0x20 || lead == 0x7F) {
      shown += {'\\', 'x', kHex[lead / 16U], kHex[lead % 16U]};
    } else if ((first.value >= 0x80 && first.value < 0xA0) ||
               IsFormatControl(first.value)) {
      shown += fmt::format("\\u{{{:x}}}", first.value);
    } else {
      shown += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return shown;
}

}  // namespace

std::string Printable(std::string_view text) { return Escaped(text, false); }

std::string PrintableLines(std::string_view text) {
  return Escaped(text, true);
}

std::string PrintableMessage(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string message = PrintableLines(text);
  for (size_t at = 0; (at = message.find('\n', at)) != message.npos; ++at) {
    if (message.compare(at + 1, 2, "  ") != 0) message.replace(at, 1, "\\n");
  }
  return message;
}

}  // namespace isoloss
