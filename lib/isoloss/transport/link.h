// Moves parcels of bytes between processes. It knows nothing about ranks.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>

#include "isoloss/base/matrix.h"

namespace isoloss::transport {

/// A parcel arrives in one piece.
struct Parcel {
  int peer = 0;
  bool more = false;  ///< what the sender posted goes on in its next parcel
  size_t bytes = 0;
  Matrix<std::byte> data;  ///< at least `bytes`, 64-byte aligned

  std::span<const std::byte> span() const { return {data.data(), bytes}; }
};

/// A link is one process's end of the connections to all peers. Parcels of a
/// peer arrive in the order in which it posted them. All members are for one
/// thread.
class Link {
 public:
  virtual ~Link() = default;

  virtual int index() const = 0;
  virtual int size() const = 0;
  virtual size_t most_parcel_bytes() const = 0;

  /// Begins to send, never waits. Adds 1 to `outstanding` now, and subtracts it
  /// once `bytes` may be changed, in this or a later call. Both must last until
  /// then.
  virtual void Post(int peer, bool more, std::span<const std::byte> bytes,
                    int* outstanding) = 0;
  /// Moves parcels on, and takes one parcel that has arrived, if any.
  virtual bool Poll(Parcel& parcel) = 0;

  /// The run that took these parcels from the link left them for a later run: a
  /// fast peer may begin the next run while this process ends one.
  std::deque<Parcel> held;
  /// Says why data from this link can't be trusted any more: a frame arrived
  /// damaged after the end of its run. "" means that the link is sound.
  std::string broken;
};

}  // namespace isoloss::transport
