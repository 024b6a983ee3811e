#include "isoloss/transport/timed_wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace isoloss::transport {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void WaitWhile(const std::atomic<uint32_t>& word, uint32_t old,
               std::chrono::nanoseconds longest) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(longest);
  const timespec limit{static_cast<time_t>(seconds.count()),
                       static_cast<long>((longest - seconds).count())};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, old, &limit, nullptr, 0);
}

void WakeAll(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace isoloss::transport
