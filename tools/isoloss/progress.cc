#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace isoloss::cli {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr int64_t kBarWidth = 24;

std::string FormatDuration(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::vector<std::string> names, int64_t steps)
    : terminal_(isatty(STDERR_FILENO) == 1),
      steps_(steps),
      start_(Clock::now()) {
  for (std::string& name : names)
    bars_.push_back({std::move(name), 0, 0, false});
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

void Progress::Clear() {
  const std::lock_guard lock(mutex_);
  if (lines_drawn_ == 0) return;
  fmt::print(stderr, "\x1b[{}F\x1b[J", lines_drawn_);
  std::fflush(stderr);
  lines_drawn_ = 0;
}

void Progress::Redraw() {
  std::string text;
  if (lines_drawn_ > 0) text += fmt::format("\x1b[{}F\x1b[J", lines_drawn_);
  lines_drawn_ = 0;
  for (const Bar& bar : bars_) {
    if (bar.step == 0 || bar.finished) continue;  // only what runs
    text += BarLine(bar);
    ++lines_drawn_;
  }
  text += TotalLine();
  ++lines_drawn_;
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string Progress::BarLine(const Bar& bar) const {
  const int64_t filled = kBarWidth * bar.step / steps_;
  std::string cells;
  for (int64_t i = 0; i < kBarWidth; ++i) cells += i < filled ? "█" : "░";
  return fmt::format("{:<20} {} {:>6}/{}  loss {:.4f}\n", bar.name, cells,
                     bar.step, steps_, bar.loss_nats);
}

std::string Progress::TotalLine() const {
  int64_t done = 0;
  for (const Bar& bar : bars_) done += bar.finished ? steps_ : bar.step;
  const int64_t all = steps_ * static_cast<int64_t>(bars_.size());
  const double elapsed =
      std::chrono::duration<double>(Clock::now() - start_).count();
  const std::string left =
      done == 0 ? "?"
                : FormatDuration(elapsed * static_cast<double>(all - done) /
                                 static_cast<double>(done));
  return fmt::format("{:.0f} % of {} runs, {} left\n",
                     100.0 * static_cast<double>(done) /
                         static_cast<double>(std::max<int64_t>(all, 1)),
                     bars_.size(), left);
}

}  // namespace isoloss::cli
