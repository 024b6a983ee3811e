#include "isoloss/report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "isoloss/report/live_view.h"
#include "isoloss/report/terminal_width.h"

namespace isoloss::report {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr size_t kWidestBar = 30;
constexpr size_t kNarrowestStepBar = 4;
constexpr size_t kWidestName = 32;
constexpr size_t kNarrowestName = 4;

/// Says how many columns and rows may be used. A line as wide as the terminal
/// would wrap, a block as high as the terminal would scroll, and the next
/// redraw would miss its place.
struct Space {
  size_t columns = 79;
  size_t rows = 23;
};

Space TerminalSpace() {
  const int columns = TerminalWidth(STDERR_FILENO).value_or(80);
  const int rows = TerminalHeight(STDERR_FILENO).value_or(24);
  return {static_cast<size_t>(columns) - 1, static_cast<size_t>(rows) - 1};
}

std::string Cells(size_t width, int64_t done, int64_t all, bool ascii) {
  const size_t filled =
      width * static_cast<size_t>(done) / static_cast<size_t>(all);
  std::string cells;
  for (size_t i = 0; i < width; ++i) {
    if (ascii) {
      cells += i < filled ? '#' : '.';
    } else {
      cells += i < filled ? "█" : "░";
    }
  }
  return cells;
}

std::string Clip(const std::string& line, size_t columns) {
  return report::ClipLine(line, static_cast<int>(columns));
}

}  // namespace

Progress::Progress(std::vector<std::string> names, int64_t steps)
    : terminal_(DrawsOnErrors()),
      ascii_(LocaleIsAscii()),
      steps_(steps),
      start_(Clock::now()) {
  for (std::string& name : names) {
    name_width_ = std::min(kWidestName, std::max(name_width_, name.size()));
    bars_.push_back({std::move(name), 0, 0, false});
  }
  if (terminal_) Redraw();
  if (!terminal_ && !bars_.empty())
    heartbeat_.emplace([this] { return Beat(); });
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

void Progress::Skip(size_t run) {
  const std::lock_guard lock(mutex_);
  bars_[run].finished = true;
  skipped_ += steps_;
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
  std::string text = fmt::format("\x1b[{}F", lines_drawn_);
  for (size_t i = 0; i < lines_drawn_; ++i) text += "\x1b[K\n";
  fmt::print(stderr, "{}\x1b[{}F", text, lines_drawn_);
  std::fflush(stderr);
  lines_drawn_ = 0;
}

void Progress::Redraw() {
  const Space space = TerminalSpace();
  const size_t before = lines_drawn_;
  std::string text;
  if (before > 0) text += fmt::format("\x1b[{}F", before);
  lines_drawn_ = 0;
  for (const Bar& bar : bars_) {
    if (bar.step == 0 || bar.finished) continue;  // only what runs
    if (lines_drawn_ + 2 > space.rows) break;     // the total comes last
    text += BarLine(bar, space.columns) + "\x1b[K\n";
    ++lines_drawn_;
  }
  text += TotalLine(space.columns) + "\x1b[K\n";
  ++lines_drawn_;
  // Clears the lines of the earlier picture that this one does not have.
  for (size_t i = lines_drawn_; i < before; ++i) text += "\x1b[K\n";
  if (lines_drawn_ < before) {
    text += fmt::format("\x1b[{}F", before - lines_drawn_);
  }
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string Progress::BarLine(const Bar& bar, size_t columns) const {
  const std::string steps = std::to_string(steps_);
  std::string name =
      fmt::format("{:<{}.{}}", bar.name, name_width_, name_width_);
  const std::string numbers = fmt::format("{:>{}}/{}  loss {:.4f}", bar.step,
                                          steps.size(), steps, bar.loss_nats);
  const size_t taken = name.size() + numbers.size() + 4;
  if (columns < taken + kNarrowestStepBar) {
    // Numbers are kept rather than the whole of a long name.
    const size_t room = columns - std::min(columns, numbers.size() + 2);
    return Clip(Clip(name, std::max(room, kNarrowestName)) + "  " + numbers,
                columns);
  }
  return fmt::format(
      "{}  {}  {}", name,
      Cells(std::min(kWidestBar, columns - taken), bar.step, steps_, ascii_),
      numbers);
}

std::string Progress::TotalLine(size_t columns) const {
  const int64_t all = steps_ * static_cast<int64_t>(bars_.size());
  int64_t done = 0;
  int64_t finished = 0;
  for (const Bar& bar : bars_) {
    done += bar.finished ? steps_ : bar.step;
    finished += bar.finished ? 1 : 0;
  }
  const int64_t percent = all == 0 ? 100 : 100 * done / all;
  const std::string left = TimeLeft(
      std::chrono::duration<double>(Clock::now() - start_).count(),
      static_cast<double>(done - skipped_), static_cast<double>(all - done));
  const std::string comma = left.empty() ? "" : ", ";
  // Narrower lines say less; the time left is dropped last.
  for (const std::string& line :
       {fmt::format("{} % done, {} of {} runs finished{}{}", percent, finished,
                    bars_.size(), comma, left),
        fmt::format("{} %, {} of {} runs{}{}", percent, finished, bars_.size(),
                    comma, left),
        fmt::format("{} %{}{}", percent, comma, left)}) {
    if (line.size() <= columns) return line;
  }
  return Clip(left.empty() ? fmt::format("{} %", percent) : left, columns);
}

std::string Progress::Beat() {
  const std::lock_guard lock(mutex_);
  std::string line = TotalLine(std::string::npos);
  for (const Bar& bar : bars_) {
    if (bar.step == 0 || bar.finished) continue;
    line += fmt::format("; {} step {} of {}, loss {:.4f}", bar.name, bar.step,
                        steps_, bar.loss_nats);
  }
  return line;
}

}  // namespace isoloss::report
