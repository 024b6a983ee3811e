// Links between endpoints in one process: what a network may do to
// parcels, and what may happen to a process, on demand.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "isoloss/transport/link.h"

namespace isoloss::transport {

/// n endpoints, each for one thread; all members may be called by any.
class MemoryNetwork {
 public:
  /// What becomes of a parcel.
  enum class Fate { kDeliver, kDrop, kDuplicate, kHoldBack };
  /// Asked for each parcel as it is posted, by the sender's thread; may change
  /// the bytes. `number` counts the parcels from `source` to `destination`,
  /// from 0. A parcel held back is delivered after the sender's next one.
  using Hook = std::function<Fate(int source, int destination, int number,
                                  std::span<std::byte> bytes)>;

  explicit MemoryNetwork(int size, size_t most_parcel_bytes = size_t{1} << 30,
                         Hook hook = {});
  ~MemoryNetwork();

  Link& endpoint(int index);

  /// From now on nothing leaves or reaches this endpoint, as if its process had
  /// been killed or stopped.
  void Silence(int index);

 private:
  struct Shared;
  class Endpoint;

  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace isoloss::transport
