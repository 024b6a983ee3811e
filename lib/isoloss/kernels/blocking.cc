#include "isoloss/kernels/blocking.h"

#include <unistd.h>

#include <algorithm>

namespace isoloss::kernels {
namespace {

size_t BytesOr0(long configured) {
  return configured > 0 ? static_cast<size_t>(configured) : 0;
}

}  // namespace

CacheSizes ThisMachinesCaches() {
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  return {BytesOr0(sysconf(_SC_LEVEL2_CACHE_SIZE)),
          BytesOr0(sysconf(_SC_LEVEL3_CACHE_SIZE))};
#else
  return {};
#endif
}

Blocking BlockingFor(const CacheSizes& caches) {
  constexpr size_t kKilobyte = 1 << 10;
  constexpr size_t kMegabyte = 1 << 20;
  const size_t l2 = caches.l2 == 0 ? kMegabyte : caches.l2;
  const size_t l3 = caches.l3 == 0 ? 32 * kMegabyte : caches.l3;
  return {.strip_bytes = std::clamp(l2 / 4, 64 * kKilobyte, kMegabyte),
          .column_block_bytes = std::clamp(l3 / 8, kMegabyte, 8 * kMegabyte)};
}

const Blocking& ThisMachinesBlocking() {
  static const Blocking blocking = BlockingFor(ThisMachinesCaches());
  return blocking;
}

}  // namespace isoloss::kernels
