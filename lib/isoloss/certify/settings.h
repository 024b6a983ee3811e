// Compares the settings of runs, which must be equal before their bits can be.
#pragma once

#include <string>
#include <vector>

#include "isoloss/certify/recorded_run.h"

namespace isoloss::certify {

struct SettingsPair {
  std::vector<std::string> different = {};  ///< phrases
  std::vector<std::string> unknown = {};    ///< phrases: told by no log
  std::vector<std::string> remarks = {};    ///< sentences; they forbid nothing
};

/// Compares what the logs of all ranks tell of settings, program, device and
/// ranks.
SettingsPair CompareSettings(const RecordedRun& first,
                             const RecordedRun& other);

}  // namespace isoloss::certify
