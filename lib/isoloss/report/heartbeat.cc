#include "isoloss/report/heartbeat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "isoloss/report/live_view.h"
#include "isoloss/report/terminal_width.h"

namespace isoloss::report {
namespace {

using Seconds = std::chrono::duration<double>;

/// Short work needs no sign of life; a minute without one looks like a hang.
constexpr Seconds kFirst{10};
constexpr Seconds kInterval{30};

/// Returns ISOLOSS_HEARTBEAT_SECONDS, which replaces both intervals; 0 or less:
/// never.
Seconds Given(Seconds usual) {
  const char* text = std::getenv("ISOLOSS_HEARTBEAT_SECONDS");
  if (text == nullptr) return usual;
  char* end = nullptr;
  const double given = std::strtod(text, &end);
  return end != text && *end == '\0' ? Seconds(given) : usual;
}

}  // namespace

bool DrawsOnErrors() { return KnowsEscapes(STDERR_FILENO); }

std::string TimeLeft(double seconds, double done, double left) {
  if (!(done > 0)) return "";
  return report::DurationText(seconds * left / done) + " left";
}

Heartbeat::Heartbeat() : Heartbeat(nullptr) {}

Heartbeat::Heartbeat(std::function<std::string()> text)
    : terminal_(DrawsOnErrors()), ask_(std::move(text)) {
  if (!terminal_ && Given(kInterval) > Seconds(0)) {
    thread_ = std::thread([this] { Beat(); });
  }
}

Heartbeat::~Heartbeat() {
  Clear();
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::Set(const std::string& text) {
  const std::lock_guard lock(mutex_);
  text_ = text;
  if (!terminal_ || ask_) return;
  const int columns = TerminalWidth(STDERR_FILENO).value_or(80) - 1;
  fmt::print(stderr, "\r\x1b[K{}", report::ClipLine(text, columns));
  std::fflush(stderr);
}

void Heartbeat::Clear() {
  const std::lock_guard lock(mutex_);
  if (terminal_ && !text_.empty()) {
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }
  text_.clear();
}

void Heartbeat::Beat() {
  Seconds wait = Given(kFirst);
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, wait, [this] { return end_; })) {
    wait = Given(kInterval);
    std::string text = text_;
    lock.unlock();  // whom it asks may be waiting in Set
    if (ask_) text = ask_();
    if (!text.empty()) fmt::print(stderr, "{}\n", text);
    lock.lock();
  }
}

}  // namespace isoloss::report
