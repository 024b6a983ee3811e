#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace isoloss::cli {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr size_t kWidestBar = 30;
constexpr size_t kNarrowestBar = 4;
constexpr size_t kWidestName = 32;

/// Columns and rows that may be used: a line as wide as the terminal would
/// wrap, a block as high would scroll, and the next redraw miss its place.
struct Space {
  size_t columns = 79;
  size_t rows = 23;
};

Space TerminalSpace() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 ||
      size.ws_row == 0) {
    return {};
  }
  return {size.ws_col - size_t{1}, size.ws_row - size_t{1}};
}

/// "1:02:03" or "2:03".
std::string FormatDuration(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  const int64_t minutes = whole / 60;
  if (minutes < 60) return fmt::format("{}:{:02}", minutes, whole % 60);
  return fmt::format("{}:{:02}:{:02}", minutes / 60, minutes % 60, whole % 60);
}

std::string Cells(size_t width, int64_t done, int64_t all) {
  const size_t filled =
      width * static_cast<size_t>(done) / static_cast<size_t>(all);
  std::string cells;
  for (size_t i = 0; i < width; ++i) cells += i < filled ? "█" : "░";
  return cells;
}

}  // namespace

Progress::Progress(std::vector<std::string> names, int64_t steps)
    : terminal_(isatty(STDERR_FILENO) == 1),
      steps_(steps),
      start_(Clock::now()) {
  for (std::string& name : names) {
    name_width_ = std::min(kWidestName, std::max(name_width_, name.size()));
    bars_.push_back({std::move(name), 0, 0, false});
  }
  if (terminal_) Redraw();
}

Progress::~Progress() { Clear(); }

void Progress::Step(size_t run, int64_t step, double loss_nats) {
  const std::lock_guard lock(mutex_);
  bars_[run].step = step;
  bars_[run].loss_nats = loss_nats;
  const auto now = Clock::now();
  if (terminal_ && now - last_draw_ >= kRedrawInterval) {
    last_draw_ = now;
    Redraw();
  }
}

void Progress::Finish(size_t run, const std::string& outcome) {
  const std::lock_guard lock(mutex_);
  bars_[run].finished = true;
  if (terminal_) {
    Redraw();
  } else {
    fmt::print(stderr, "{}: {}\n", bars_[run].name, outcome);
  }
}

void Progress::Say(const std::string& text) {
  const std::lock_guard lock(mutex_);
  Erase();
  fmt::print(stderr, "{}\n", text);
}

void Progress::Clear() {
  const std::lock_guard lock(mutex_);
  Erase();
}

void Progress::Erase() {
  if (lines_drawn_ == 0) return;
  fmt::print(stderr, "\x1b[{}F\x1b[J", lines_drawn_);
  std::fflush(stderr);
  lines_drawn_ = 0;
}

void Progress::Redraw() {
  const Space space = TerminalSpace();
  std::string text;
  if (lines_drawn_ > 0) text += fmt::format("\x1b[{}F\x1b[J", lines_drawn_);
  lines_drawn_ = 0;
  for (const Bar& bar : bars_) {
    if (bar.step == 0 || bar.finished) continue;  // only what runs
    if (lines_drawn_ + 2 > space.rows) break;     // the total comes last
    text += BarLine(bar, space.columns) + "\n";
    ++lines_drawn_;
  }
  text += TotalLine().substr(0, space.columns) + "\n";
  ++lines_drawn_;
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string Progress::BarLine(const Bar& bar, size_t columns) const {
  const std::string steps = std::to_string(steps_);
  const std::string name =
      fmt::format("{:<{}.{}}", bar.name, name_width_, name_width_);
  const std::string numbers = fmt::format("{:>{}}/{}  loss {:.4f}", bar.step,
                                          steps.size(), steps, bar.loss_nats);
  const size_t taken = name.size() + numbers.size() + 4;
  if (columns < taken + kNarrowestBar) {
    return fmt::format("{}  {}", name, numbers).substr(0, columns);
  }
  return fmt::format(
      "{}  {}  {}", name,
      Cells(std::min(kWidestBar, columns - taken), bar.step, steps_), numbers);
}

std::string Progress::TotalLine() const {
  const int64_t all = steps_ * static_cast<int64_t>(bars_.size());
  int64_t done = 0;
  int64_t finished = 0;
  for (const Bar& bar : bars_) {
    done += bar.finished ? steps_ : bar.step;
    finished += bar.finished ? 1 : 0;
  }
  std::string line =
      fmt::format("{} % done, {} of {} runs finished",
                  all == 0 ? 100 : 100 * done / all, finished, bars_.size());
  if (done > 0) {
    const double elapsed =
        std::chrono::duration<double>(Clock::now() - start_).count();
    line += fmt::format(
        ", {} left", FormatDuration(elapsed * static_cast<double>(all - done) /
                                    static_cast<double>(done)));
  }
  return line;
}

}  // namespace isoloss::cli
