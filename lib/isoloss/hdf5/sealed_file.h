// Writes HDF5 files with the trailer of trailer.h, whole or not at all, and
// reads them only if no byte has changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "isoloss/base/error.h"
#include "isoloss/hdf5/handle.h"
#include "isoloss/hdf5/read_limit.h"
#include "isoloss/hdf5/trailer.h"
#include "isoloss/hdf5/tree.h"

namespace isoloss::hdf5 {

/// A reader takes no larger step or number in an attribute: every double up to
/// it is exact, and sums of a few can't overflow.
inline constexpr int64_t kMaxCounted = int64_t{1} << 53;

/// A larger file is neither written nor read; no log of ours comes near it.
inline constexpr size_t kMaxSealedBytes = size_t{256} << 20;

/// The file says that it is of another kind than the reader wants.
class WrongKindError : public Error {
 public:
  WrongKindError(const FileKind& found, const std::string& message)
      : Error(ErrorKind::kFormat, message), found_(&found) {}

  /// Returns one of the kinds in trailer.h.
  const FileKind& found() const { return *found_; }

 private:
  const FileKind* found_;
};

/// Lets `encode` fill a file in memory and writes it under a temporary name,
/// then renames it.
/// Errors   IoError naming the path and the reason, also if no reader would
///          take so large a file; what `encode` throws. Nothing is left.
void WriteSealedFile(const std::filesystem::path& path, const FileKind& kind,
                     const std::function<void(const Handle& file)>& encode);

/// Is the only way to the content of an HDF5 file. Lets `decode` read the tree
/// of its groups. The caller keeps the returned charge as long as the content.
/// Errors   IoError if it can't be read; WrongKindError if it is of another
///          kind; FormatError if it was changed, breaks a rule of tree.h, is
///          too large, or holds too much.
ReadCharge ReadSealedFile(const std::filesystem::path& path,
                          const FileKind& kind,
                          const std::function<void(const Object& root)>& decode,
                          Maker maker = Maker::kAnybody);

/// Returns the only kind whose version is among the attributes of the file's
/// root. Null if there is no such kind, or the file can't be read.
const FileKind* KindOf(const std::filesystem::path& path);

}  // namespace isoloss::hdf5
