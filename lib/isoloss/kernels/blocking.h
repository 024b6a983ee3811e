// How much of a product's operands is worked on at a time. No bit of a result
// depends on it.
#pragma once

#include <cstddef>

namespace isoloss::kernels {

/// Bytes of a core's second-level cache and of the third-level one that it can
/// reach. 0: not known.
struct CacheSizes {
  size_t l2 = 0;
  size_t l3 = 0;
};

/// As the operating system tells it.
CacheSizes ThisMachinesCaches();

struct Blocking {
  /// Rows of a that are used with one panel of b after the other, packed or
  /// not: a quarter of L2, as what they are multiplied to lies there as well.
  size_t strip_bytes;
  /// Panels of b kept while several strips pass: an eighth of L3, which other
  /// cores share.
  size_t column_block_bytes;
};

/// Unknown sizes are taken for 1 MB of L2 and 32 MB of L3. Strips have 64 KB to
/// 1 MB, column blocks 1 to 8 MB.
Blocking BlockingFor(const CacheSizes& caches);

/// BlockingFor(ThisMachinesCaches()), found once.
const Blocking& ThisMachinesBlocking();

}  // namespace isoloss::kernels
