// Examines whether this machine, with this build, is fit to train and to judge.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/doctor/library_versions.h"
#include "isoloss/doctor/self_test.h"

namespace isoloss::doctor {

enum class Health {
  kOk,
  kNote,     ///< something is not there, or not as fast as it could be
  kProblem,  ///< results would be wrong, or could not be written
};

/// Returns "ok", "note" or "problem".
const char* HealthName(Health health);

struct HealthCheck {
  std::string topic;  ///< at most 11 characters
  Health health = Health::kOk;
  std::string text = {};
  std::string remedy = {};  ///< "" of what is well
  /// Programs read these values, which `text` is made of.
  std::vector<std::pair<std::string, std::string>> values = {};
};

struct Examination {
  std::vector<HealthCheck> checks;
  double seconds = 0;  ///< that it took

  size_t Count(Health health) const;
};

struct DoctorOptions {
  std::filesystem::path folder = "runs";  ///< where results would go
  std::vector<LibraryVersion> more_libraries = {};
  std::span<const KnownNumerics> known = AllKnownNumerics();
};

/// Examines everything that a command of this program relies on. Writes no
/// file; starts launchers that are in PATH, to ask for their version.
Examination Examine(const DoctorOptions& options);

}  // namespace isoloss::doctor
