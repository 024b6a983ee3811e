#include "isoloss/document/text_layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace isoloss::document {
namespace {

/// Returns the most bytes up to `bytes` that cut no UTF-8 character.
size_t WholeCharacters(std::string_view text, size_t bytes) {
  const auto continues = [&](size_t place) {
    return place < text.size() &&
           (static_cast<unsigned char>(text[place]) & 0xC0U) == 0x80U;
  };
  size_t end = std::min(bytes, text.size());
  while (end > 0 && continues(end)) --end;
  return end == 0 ? std::min(bytes, text.size()) : end;
}

}  // namespace

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

std::vector<std::string> WrappedLines(const std::string& text, size_t used,
                                      size_t indent, size_t most,
                                      const TextStyle& style) {
  const auto width = static_cast<size_t>(style.width);
  std::vector<std::string> lines;
  std::string_view rest = text;
  while (!rest.empty() && most > 0) {
    const std::string before = lines.empty() ? "" : std::string(indent, ' ');
    const size_t room = width - (lines.empty() ? used : indent);
    if (lines.size() + 1 == most) {
      lines.push_back(before + Shortened(rest, room));
      break;
    }
    size_t end = rest.size();
    if (end > room) {
      const size_t space = rest.rfind(' ', room);
      end = space == 0 || space == std::string_view::npos
                ? WholeCharacters(rest, room)
                : space;
    }
    lines.push_back(before + std::string(rest.substr(0, end)));
    rest.remove_prefix(end);
    if (rest.starts_with(' ')) rest.remove_prefix(1);
  }
  return lines;
}

std::string WrapProse(const std::string& text, const TextStyle& style) {
  std::string wrapped;
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const bool is_row = line.find("  ", indent) != std::string::npos;
    wrapped += is_row ? line
                      : line.substr(0, indent) +
                            Wrap(line.substr(indent), indent, indent, style);
    if (end < text.size()) wrapped += '\n';
    start = end + 1;
  }
  return wrapped;
}

std::string Shortened(std::string_view text, size_t bytes) {
  constexpr std::string_view kMark = "...";
  if (text.size() <= bytes) return std::string(text);
  const size_t kept = WholeCharacters(text, bytes - kMark.size());
  return fmt::format("{}{}", text.substr(0, kept), kMark);
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

}  // namespace isoloss::document
