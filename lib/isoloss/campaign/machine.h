// What this process may use of the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace isoloss::campaign {

/// Limits of the control groups that this process is in, as containers and
/// batch systems set them; the least of all levels.
struct GroupLimits {
  std::optional<double> memory_bytes = std::nullopt;
  std::optional<double> processors = std::nullopt;
};

/// Of versions 1 and 2, below `root` in place of "/". What can't be read is no
/// limit.
GroupLimits ReadGroupLimits(const std::filesystem::path& root = "/");

struct Machine {
  int processors = 0;  ///< that this process may run on
  int online = 0;      ///< that the machine has
  double memory_bytes = 0;
  double available_bytes = 0;  ///< of memory, without swapping
  GroupLimits limits;
};

Machine ExamineMachine();

/// Where results would go.
struct Disk {
  /// `folder`, or the nearest of the folders above it that is there.
  std::filesystem::path existing;
  double free_bytes = 0;  ///< for this user
  std::string problem;    ///< why nothing can be written there, or ""
};

/// Writes nothing.
Disk ExamineDisk(const std::filesystem::path& folder);

}  // namespace isoloss::campaign
