// HDF5 files with the trailer of trailer.h: written whole or not at all, read
// only if no byte has changed.
#pragma once

#include <filesystem>
#include <functional>

#include "isoloss/runlog/h5_handle.h"
#include "isoloss/runlog/trailer.h"

namespace isoloss::runlog {

/// Lets `encode` fill a file in memory and writes it under a temporary name,
/// then renames it.
/// Errors   IoError naming the path and the reason; what `encode` throws.
/// Nothing is left.
void WriteSealedFile(const std::filesystem::path& path, const FileKind& kind,
                     const std::function<void(const h5::Handle& file)>& encode);

/// Lets `decode` read the file.
/// Errors   IoError if it can't be read; FormatError if it was changed, or if
///          HDF5 refuses a call of `decode`.
void ReadSealedFile(const std::filesystem::path& path, const FileKind& kind,
                    const std::function<void(const h5::Handle& file)>& decode);

}  // namespace isoloss::runlog
