// The process that runs HDF5 passes a tree to its parent as a stream of bytes
// in host byte order.
//
//   object  := uint8 is_group, [values], uint32 count, {text, values},
//              uint32 count, {text, object}
//   values  := uint8 type, text type_name, uint8 axes, {uint64}, uint8 is_read,
//              uint64 bytes, padding to 8 bytes, bytes
//   text    := uint32 bytes, bytes
// Values of strings are texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>

namespace isoloss::hdf5 {

inline constexpr size_t kStreamAlignment = 8;
/// An array has at most this many axes, and groups are nested at most this
/// deep: far more than we write.
inline constexpr size_t kMaxAxes = 8;
inline constexpr size_t kMaxDepth = 8;

/// The shared memory begins with this head. A child that did not set `state`
/// did not complete its work.
struct StreamHead {
  enum State : uint64_t { kUnfinished = 0, kDone, kRefused };
  State state;
  uint64_t length;  ///< of what follows: the stream, or the reason
};

/// Puts a stream into memory.
class StreamWriter {
 public:
  class Full : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
  };

  explicit StreamWriter(std::span<std::byte> memory) : memory_(memory) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void Put(const T& value) { std::memcpy(Take(sizeof(T)), &value, sizeof(T)); }
  void PutText(std::string_view text) {
    if (text.size() > UINT32_MAX) throw Full("a text has 4 GiB");
    Put(static_cast<uint32_t>(text.size()));
    if (!text.empty()) std::memcpy(Take(text.size()), text.data(), text.size());
  }
  void Align() {
    Take((kStreamAlignment - used_ % kStreamAlignment) % kStreamAlignment);
  }
  /// Returns the next `bytes`, which the caller fills.
  std::byte* Take(size_t bytes) {
    if (bytes > memory_.size() - used_) throw Full("the file holds too much");
    std::byte* place = memory_.data() + used_;
    used_ += bytes;
    return place;
  }
  size_t used() const { return used_; }

 private:
  std::span<std::byte> memory_;
  size_t used_ = 0;
};

}  // namespace isoloss::hdf5
