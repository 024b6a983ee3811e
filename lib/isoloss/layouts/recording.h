// Reads what all ranks of one run recorded, as one side of a comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/operations/mesh.h"
#include "isoloss/operations/operation.h"

namespace isoloss::layouts {

/// A recording holds all ranks of each of its steps, sorted by step and rank.
struct Recording {
  std::string name;  ///< as the user gave it
  std::vector<operations::OperationFile> files = {};
  std::vector<operations::MeshAxis> mesh = {};  ///< empty: files do not tell

  std::vector<int64_t> Steps() const;
  /// Returns the places of a step's files, in the order of ranks.
  std::vector<size_t> Of(int64_t step) const;
  int64_t ranks() const { return files.front().ranks; }
  int64_t data_ranks() const { return files.front().data_ranks; }
  /// Returns the ranks that have the same tokens: those of a tensor-parallel
  /// group.
  size_t replicas() const {
    return static_cast<size_t>(ranks() / data_ranks());
  }
  /// Returns "2 ranks (tp=2)".
  std::string Layout() const;
};

/// Returns the files of a folder, those of the run with that name or log
/// (`runs/mine`, `runs/mine.h5`), or the one file.
/// Errors   ConfigError if there are none, or of several runs.
std::vector<std::filesystem::path> FilesOf(const std::filesystem::path& place);

/// Reads the files, which are of one run.
/// Errors   those of operations::ReadOperations; FormatError if a rank of a
///          step is missing or comes twice, or if ranks contradict each other.
Recording ReadRecording(const std::filesystem::path& place);

}  // namespace isoloss::layouts
