#include "interrupt.h"

#include <csignal>

namespace isoloss::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

extern "C" void OnSignal(int) { interrupted.store(true); }

void Install(int signal) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

const std::atomic<bool>& InterruptFlag() {
  static const bool installed = [] {
    Install(SIGINT);
    Install(SIGTERM);
    return true;
  }();
  static_cast<void>(installed);
  return interrupted;
}

}  // namespace isoloss::cli
