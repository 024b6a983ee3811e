// Examines the machine of one process before a job's first step: arithmetic,
// memory and disk. Each part takes about two seconds at most.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/doctor/self_test.h"

namespace isoloss::doctor {

/// The job needs these, in bytes.
struct JobNeeds {
  double memory = 0;  ///< of each process
  double disk = 0;    ///< in the folder of results
};

/// Each type below has the result of one part. Rates are 0 if they could not be
/// measured.
struct NumericsHealth {
  int trainings = 0;
  std::string problem = {};  ///< "": all have the known bits
};
struct MemoryHealth {
  double available_bytes = 0;  ///< to all processes of this machine
  double bytes_per_second = 0;
  std::string problem = {};
};
struct DiskHealth {
  double free_bytes = 0;
  double write_bytes_per_second = 0;  ///< with fsync
  double read_bytes_per_second = 0;
  /// This machine's clock minus the time that the file system gives a new file.
  /// If it is negative, the clock is late.
  double seconds_ahead = 0;
  std::string problem = {};
};

struct NodeHealth {
  NumericsHealth numerics = {};
  MemoryHealth memory = {};
  DiskHealth disk = {};
};

/// A clock that is further off is a problem. `isoloss watch` takes a run for
/// dead if its files did not change for 5 seconds (watched_runs.cc). Such times
/// also tell which of two logs is the newer one.
inline constexpr double kMostSecondsOff = 5;

/// Trains as RunSelfTest does.
NumericsHealth ExamineNumerics(
    std::span<const KnownNumerics> known = AllKnownNumerics());

/// `processes` of the job share this machine and need `needs.memory` each.
/// Writes, reads and compares a block of at most 256 MiB, but no more than a
/// quarter of the available memory.
MemoryHealth ExamineMemory(const JobNeeds& needs, int processes);

/// Writes a file of 8 MiB in `folder`, or in the nearest existing folder above,
/// and compares what comes back. The file has no name once it is open, so no
/// rest of it can stay.
DiskHealth WriteAndReadBack(const std::filesystem::path& folder,
                            const JobNeeds& needs);

/// Calls `examine()` on a thread of its own, since a file system that does not
/// answer keeps its caller for ever. After `longest` that is a problem, and the
/// thread is abandoned.
DiskHealth ExamineDiskWithin(std::chrono::duration<double> longest,
                             std::function<DiskHealth()> examine);

/// Returns the seconds since 1970 by this machine's clock.
double WallSeconds();

}  // namespace isoloss::doctor
