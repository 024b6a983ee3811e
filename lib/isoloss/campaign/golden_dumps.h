// Tensors that the lanes of a golden store whole (`log.dump_tensors`), held
// against the statistics of the same step and against each other.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::campaign {

/// The dumps of all lanes of one folder.
class GoldenDumps {
 public:
  /// Reads the dumps below `out`, the folder of a lane whose logs are `runs`.
  /// Returns the first fault, "" if there is none: a tensor whose extremes,
  /// counts or scales are not those that the log holds of this step, a block
  /// whose scale does not fit its largest magnitude, an element whose code is
  /// not the nearest one, experts' rows without expert ids, or a tensor that
  /// another lane has dumped with other bits.
  /// Errors   as runlog::ReadTensorDump.
  std::string Add(const std::filesystem::path& out,
                  const std::vector<compare::Run>& runs);

 private:
  /// The first lane's file, by its name.
  std::map<std::string, std::filesystem::path> files_;
};

}  // namespace isoloss::campaign
