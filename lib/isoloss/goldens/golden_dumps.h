// Compares tensors that the lanes of a golden store whole (`log.dump_tensors`)
// with the statistics of the same step and with each other.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::goldens {

/// Keeps the dumps of all lanes of one folder.
class GoldenDumps {
 public:
  /// Reads the dumps below `out`, the folder of a lane whose logs are `runs`.
  /// Returns the first fault, or "". These are faults:
  /// - a tensor whose extremes, counts or scales are not those of this step in
  ///   the log;
  /// - a block whose scale does not fit its largest magnitude;
  /// - an element whose code is not the nearest one;
  /// - experts' rows without expert ids;
  /// - a tensor that another lane has dumped with other bits.
  /// Errors   as runlog::ReadTensorDump.
  std::string Add(const std::filesystem::path& out,
                  const std::vector<compare::Run>& runs);

 private:
  /// Maps the name of a dump to the file of the first lane that has it.
  std::map<std::string, std::filesystem::path> files_;
};

}  // namespace isoloss::goldens
