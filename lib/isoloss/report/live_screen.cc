#include "isoloss/report/live_screen.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "isoloss/base/printable.h"
#include "isoloss/report/terminal_width.h"

namespace isoloss::report {
namespace {

using document::TextStyle;

constexpr int kRowsOfFiles = 40;

std::string Waiting(const std::filesystem::path& path) {
  return fmt::format("{}: no run yet, waiting", Printable(path.string()));
}

int Rows() {
  const int rows = TerminalHeight().value_or(kRowsOfFiles);
  return rows < 2 ? kRowsOfFiles : rows - 1;
}

}  // namespace

LiveScreen::LiveScreen(bool ascii)
    : terminal_(KnowsEscapes(STDOUT_FILENO)), ascii_(ascii) {}

LiveScreen::~LiveScreen() {
  if (!inside_) return;
  std::string text = "\x1b[?25h\x1b[?1049l";
  for (const std::string& line : last_) text += line + "\n";
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void LiveScreen::Draw(const LivePicture& picture,
                      const std::filesystem::path& path) {
  if (!terminal_) {
    fmt::print("{}\n", picture.empty() ? Waiting(path)
                                       : LiveLine(picture.runs, picture.job));
    std::fflush(stdout);
    return;
  }
  last_ = Lines(picture, path);
  // Opens the alternate screen without a cursor, then draws each line over the
  // earlier one.
  std::string text = inside_ ? "" : "\x1b[?1049h\x1b[?25l";
  inside_ = true;
  text += "\x1b[H";
  for (const std::string& line : last_) text += line + "\x1b[K\n";
  text += "\x1b[J";
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void LiveScreen::DrawOnce(const LivePicture& picture) const {
  for (const std::string& line :
       DrawLiveRuns(picture.runs, terminal_ ? Rows() : kRowsOfFiles, Style(),
                    picture.job)) {
    fmt::print("{}\n", line);
  }
}

std::vector<std::string> LiveScreen::Lines(
    const LivePicture& picture, const std::filesystem::path& path) const {
  const int rows = Rows();
  std::vector<std::string> lines = {ClipLine(Waiting(path), Style().width)};
  if (!picture.empty()) {
    lines = DrawLiveRuns(picture.runs, rows, Style(), picture.job);
  }
  // One more line would make the terminal scroll.
  lines.resize(std::min(lines.size(), static_cast<size_t>(rows)));
  return lines;
}

TextStyle LiveScreen::Style() const {
  TextStyle style = TerminalStyle(ascii_);
  // A line as wide as the terminal would wrap.
  if (terminal_) {
    style.width = std::min(style.width, TerminalWidth().value_or(80)) - 1;
  }
  return style;
}

}  // namespace isoloss::report
