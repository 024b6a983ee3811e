// Replaces goldens by what this program computes. Every change has a reason, a
// verdict and a commit that made it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/goldens/golden_history.h"

namespace isoloss::goldens {

struct GoldenUpdatePlan {
  std::filesystem::path folder = {};
  std::string reason = {};
  /// The oracle need not explain the new values of these tensors, given by name
  /// or pattern.
  std::vector<std::string> accepted = {};
  bool create = false;        ///< the first goldens of the folder
  bool reconfigured = false;  ///< the old ones are of another experiment
  bool draft = false;         ///< from a modified source too
  /// UpdateGoldens calls this function before it writes anything.
  std::function<void(const std::vector<GoldenChange>& changes)> on_changes = {};
};

/// Describes how an update ended.
struct GoldenUpdate {
  std::string refused = {};  ///< why the runs are no goldens; "" if they are
  size_t changed = 0;
  size_t runs = 0;
  bool interrupted = false;
};

/// Trains everything twice, asks the gate and the oracle, and writes the folder
/// whole or not at all (docs/golden.md, section Update).
/// Errors   ConfigError if the reason, the source or the folder does not allow
///          it, or if nothing changed.
GoldenUpdate UpdateGoldens(const GoldenUpdatePlan& plan);

}  // namespace isoloss::goldens
