#include "isoloss/system/interrupt.h"

#include <csignal>

namespace isoloss::system {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

extern "C" void OnSignal(int) { interrupted.store(true); }

void Install(int signal, int flags) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

bool IsIgnored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

}  // namespace

const std::atomic<bool>& InterruptFlag() {
  static const bool installed = [] {
    Install(SIGINT, SA_RESETHAND | SA_RESTART);
    Install(SIGTERM, SA_RESETHAND | SA_RESTART);
    if (!IsIgnored(SIGHUP)) Install(SIGHUP, SA_RESTART);
    return true;
  }();
  static_cast<void>(installed);
  return interrupted;
}

}  // namespace isoloss::system
