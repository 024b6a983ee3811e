// Decides how much of a product's operands is worked on at a time. No bit of a
// result depends on this.
#pragma once

#include <cstddef>

namespace isoloss::kernels {

/// Holds the bytes of a core's second-level cache and of the third-level cache
/// that the core can reach. 0 means not known.
struct CacheSizes {
  size_t l2 = 0;
  size_t l3 = 0;
};

/// Returns the sizes that the operating system tells.
CacheSizes ThisMachinesCaches();

struct Blocking {
  /// A strip is the rows of a that are used with one panel of b after another,
  /// packed or not. It gets a quarter of L2, as the products lie there as well.
  size_t strip_bytes;
  /// A column block is the panels of b kept while several strips pass. It gets
  /// an eighth of L3, which other cores share.
  size_t column_block_bytes;
};

/// Unknown sizes are taken for 1 MB of L2 and 32 MB of L3. Strips have 64 KB to
/// 1 MB, column blocks 1 to 8 MB.
Blocking BlockingFor(const CacheSizes& caches);

/// Returns BlockingFor(ThisMachinesCaches()), which is found once.
const Blocking& ThisMachinesBlocking();

}  // namespace isoloss::kernels
