// Examines what this process may use of the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace isoloss::doctor {

/// Containers and batch systems set limits of control groups. The lowest of all
/// levels that this process is in counts.
struct GroupLimits {
  std::optional<double> memory_bytes = std::nullopt;
  std::optional<double> processors = std::nullopt;
};

/// Reads groups of versions 1 and 2, below `root` instead of "/". A file that
/// can't be read is no limit.
GroupLimits ReadGroupLimits(const std::filesystem::path& root = "/");

struct Machine {
  int processors = 0;  ///< that this process may run on
  int online = 0;      ///< that the machine has
  double memory_bytes = 0;
  double available_bytes = 0;  ///< of memory, without swapping
  GroupLimits limits;
};

Machine ExamineMachine();

/// Describes the disk where results would go.
struct Disk {
  /// Is `folder`, or the nearest existing folder above it.
  std::filesystem::path existing;
  double free_bytes = 0;  ///< for this user
  std::string problem;    ///< why nothing can be written there, or ""
};

/// Examines the disk without writing to it.
Disk ExamineDisk(const std::filesystem::path& folder);

}  // namespace isoloss::doctor
