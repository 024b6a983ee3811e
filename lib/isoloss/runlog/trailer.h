// What stands behind the HDF5 data of our files, and is checked before HDF5
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
#include <string_view>
#include <vector>

namespace isoloss::runlog {

inline constexpr size_t kTrailerBytes = 24;

/// What a file is, for messages.
struct FileKind {
  std::string_view name;   ///< "run log"
  std::string_view maker;  ///< the command that writes it
};
inline constexpr FileKind kRunLogFile = {"run log", "isoloss run"};

/// Appends the trailer of `image`.
void AppendTrailer(std::vector<std::byte>& image);

/// The HDF5 data of the `bytes` of a file of that kind. `name` is for messages.
/// Errors   FormatError if it does not begin as HDF5, or its trailer does not
///          fit it, or it has none and is not plainly of version 1 or 2, which
///          had none.
std::span<const std::byte> CheckedData(std::span<const std::byte> bytes,
                                       const std::string& name,
                                       const FileKind& kind = kRunLogFile);

}  // namespace isoloss::runlog
