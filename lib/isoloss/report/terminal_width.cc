#include "isoloss/report/terminal_width.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>

namespace isoloss::report {
namespace {

using document::TextStyle;

constexpr int kNarrowest = 40;  // columns
constexpr int kWidest = 120;

std::optional<winsize> SizeOf(int descriptor) {
  winsize size = {};
  if (isatty(descriptor) != 1 || ioctl(descriptor, TIOCGWINSZ, &size) != 0) {
    return std::nullopt;
  }
  return size;
}

}  // namespace

std::optional<int> TerminalWidth(int descriptor) {
  const auto size = SizeOf(descriptor);
  if (!size || size->ws_col == 0) return std::nullopt;
  return size->ws_col;
}

std::optional<int> TerminalHeight(int descriptor) {
  const auto size = SizeOf(descriptor);
  if (!size || size->ws_row == 0) return std::nullopt;
  return size->ws_row;
}

bool KnowsEscapes(int descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor) == 1 &&
         (term == nullptr || std::string_view(term) != "dumb");
}

bool LocaleIsAscii() {
  // The first variable that is set decides (POSIX, 8.2).
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string lower;
    for (const char* c = value; *c != '\0'; ++c) {
      if (*c != '-') {
        lower +=
            static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
      }
    }
    return lower.find("utf8") == std::string::npos;
  }
  return false;
}

TextStyle ProseStyle(int descriptor) {
  constexpr int kWidthOfProse = 100;
  return {.width = std::clamp(TerminalWidth(descriptor).value_or(kWidthOfProse),
                              kNarrowest, kWidest)};
}

TextStyle TerminalStyle(bool ascii) {
  constexpr int kWidthOfFiles = 80;
  TextStyle style;
  style.ascii = ascii || LocaleIsAscii();
  style.width = kWidthOfFiles;
  if (const auto columns = TerminalWidth()) {
    style.width = std::clamp(*columns, kNarrowest, kWidest);
  }
  style.color = KnowsEscapes(STDOUT_FILENO) &&
                std::getenv("NO_COLOR") == nullptr;  // https://no-color.org
  return style;
}

}  // namespace isoloss::report
