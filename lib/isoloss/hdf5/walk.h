// Runs HDF5 on bytes that nobody trusts; this is one part of reading a file.
#pragma once

#include <cstddef>
#include <span>

#include "isoloss/hdf5/tree.h"

namespace isoloss::hdf5 {

/// Limits, by the size of a file, the objects and bytes for which it may ask.
struct Budget {
  explicit Budget(size_t file_bytes);

  size_t texts;   ///< bytes of all strings: each stands in the file itself
  size_t values;  ///< bytes of all values, decompressed; as ReadLimit
  size_t stream;  ///< of a stream of them
  size_t memory;  ///< HDF5's own, for it
  int seconds;    ///< of processor time
};

/// Walks `file` and leaves a StreamHead in `memory`, with a stream or with the
/// reason why the file is refused. Never throws. Must be called in a process of
/// its own, and the library's mutex must be free or held by the caller.
void WalkFile(std::span<const std::byte> file, const Budget& budget, Part part,
              std::span<std::byte> memory) noexcept;

}  // namespace isoloss::hdf5
