// What stands behind the HDF5 data of a run log, and is checked before HDF5
// sees any of it: HDF5 1.10 can crash or hang on one flipped bit of its
// bookkeeping. HDF5 itself does not look behind the end that its superblock
// names.
//
// Trailer, little-endian: 8 bytes "isolossT", uint64 length of the HDF5 data,
// uint64 XXH3-64 of it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace isoloss::runlog {

inline constexpr size_t kTrailerBytes = 24;

/// Appends the trailer of `image`.
void AppendTrailer(std::vector<std::byte>& image);

/// The HDF5 data of a run log's `bytes`. `name` is for messages.
/// Errors   FormatError if it does not begin as HDF5, or its trailer does not
///          fit it, or it has none and is not plainly of version 1 or 2, which
///          had none.
std::span<const std::byte> CheckedData(std::span<const std::byte> bytes,
                                       const std::string& name);

}  // namespace isoloss::runlog
