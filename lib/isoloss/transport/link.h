// How parcels of bytes get from one process to another; nothing about ranks.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>

#include "isoloss/base/matrix.h"

namespace isoloss::transport {

/// What arrived in one piece.
struct Parcel {
  int peer = 0;
  bool more = false;  ///< what the sender posted goes on in its next parcel
  size_t bytes = 0;
  Matrix<std::byte> data;  ///< at least `bytes`, 64-byte aligned

  std::span<const std::byte> span() const { return {data.data(), bytes}; }
};

/// One process's end. Parcels of a peer arrive in the order it posted them. All
/// members are for one thread.
class Link {
 public:
  virtual ~Link() = default;

  virtual int index() const = 0;
  virtual int size() const = 0;
  virtual size_t most_parcel_bytes() const = 0;

  /// Begins to send, never waits. Adds 1 to `outstanding` and takes it off once
  /// `bytes` may be changed, in this or a later call; both must last until
  /// then.
  virtual void Post(int peer, bool more, std::span<const std::byte> bytes,
                    int* outstanding) = 0;
  /// Moves what is under way, and takes one parcel that has arrived, if any.
  virtual bool Poll(Parcel& parcel) = 0;

  /// Parcels of a later run, which the run that took them from the link has
  /// left for it: a fast peer may begin the next while this process ends one.
  std::deque<Parcel> held;
  /// Why what comes from it can't be trusted any more: something arrived
  /// damaged when a run had ended already. "": it is sound.
  std::string broken;
};

}  // namespace isoloss::transport
