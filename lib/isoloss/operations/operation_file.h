// Reads recorded operations from HDF5 as docs/check-tensors.md describes it.
#pragma once

#include <filesystem>
#include <string>

#include "isoloss/hdf5/tree.h"
#include "isoloss/operations/operation.h"

namespace isoloss::operations {

inline constexpr int64_t kOperationsVersion = 1;
/// A larger file is not read.
inline constexpr uint64_t kMaxOperationBytes = uint64_t{256} << 20;

/// Reads an HDF5 file, or, if the name ends in .toml, a mapping with the files
/// that it names (mapping.h). Neither is trusted.
/// Errors   IoError if a file can't be read; FormatError or ConfigError, naming
///          file, operation and tensor, if it is not as described.
OperationFile ReadOperations(const std::filesystem::path& path);

/// Reads the operations from the root of such a file.
OperationFile OperationsOf(const hdf5::Object& root, const std::string& path);

/// Returns all bytes of a file, which must not be larger than
/// kMaxOperationBytes.
std::vector<std::byte> ReadWholeFile(const std::filesystem::path& path);

}  // namespace isoloss::operations
