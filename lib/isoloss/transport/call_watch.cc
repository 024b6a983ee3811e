#include "isoloss/transport/call_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace isoloss::transport {

CallWatch::CallWatch(Rules rules)
    : rules_(std::move(rules)), thread_([this] { Run(); }) {}

CallWatch::~CallWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

CallWatch::Scope::Scope(CallWatch& watch, const char* call, double longest)
    : watch_(watch) {
  watch_.call_.store(call, std::memory_order_relaxed);
  watch_.longest_.store(longest, std::memory_order_relaxed);
  // One thread makes all calls, so a load and a store are no race.
  watch_.turn_.store(watch_.turn_.load(std::memory_order_relaxed) + 1,
                     std::memory_order_release);
}

CallWatch::Scope::~Scope() {
  watch_.turn_.store(watch_.turn_.load(std::memory_order_relaxed) + 1,
                     std::memory_order_release);
}

void CallWatch::Run() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kTick{100};
  // The time between two looks counts at most this long: a job that is
  // suspended and continued has not been stuck.
  constexpr double kMostBetween = 0.5;
  uint64_t last = turn_.load(std::memory_order_acquire);
  double seconds = 0;
  auto before = Clock::now();
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kTick, [&] { return over_; })) {
    const uint64_t turn = turn_.load(std::memory_order_acquire);
    const auto now = Clock::now();
    const double passed =
        std::chrono::duration<double>(now - std::exchange(before, now)).count();
    seconds += std::min(passed, kMostBetween);
    if (std::exchange(last, turn) != turn) {
      seconds = 0;
      continue;
    }
    const std::string problem = ProblemAfter(turn % 2 == 1, seconds);
    if (problem.empty()) continue;
    lock.unlock();
    rules_.stuck(problem);
    return;
  }
}

/// Says what is stuck after `seconds` in one call, or without a call. Returns
/// "" if nothing is.
std::string CallWatch::ProblemAfter(bool in_call, double seconds) const {
  if (seconds < deadline_) return "";
  if (!in_call) {
    const std::string why = rules_.forsaken();
    if (why.empty()) return "";
    return fmt::format(
        "this process has been busy with itself or a blocked output for {:.3g} "
        "s, and the job is over: {}",
        seconds, why);
  }
  const std::string trouble = rules_.trouble();
  const double longest = std::max<double>(longest_, deadline_);
  if (trouble.empty() && seconds < longest) return "";
  return fmt::format(
      "{} has not returned for {:.3g} s, but it may take {:.3g} s. {}",
      call_.load(), seconds, trouble.empty() ? longest : deadline_.load(),
      trouble.empty() ? "Look what became of the other processes, of their "
                        "network and of the launcher."
                      : trouble);
}

}  // namespace isoloss::transport
