// What one process of a job finds on its own machine before the first step:
// arithmetic, memory, disk. Each part takes about two seconds at most.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/campaign/self_test.h"

namespace isoloss::campaign {

/// What the job takes, in bytes.
struct JobNeeds {
  double memory = 0;  ///< of each process
  double disk = 0;    ///< in the folder of results
};

/// Of one part. Rates are 0 if they could not be measured.
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
  /// Of this machine's clock before the time that the file system gives a new
  /// file; negative: it is behind.
  double seconds_ahead = 0;
  std::string problem = {};
};

struct NodeHealth {
  NumericsHealth numerics = {};
  MemoryHealth memory = {};
  DiskHealth disk = {};
};

/// A clock that is further off is a problem: `isoloss watch` takes a run for
/// dead whose files did not change for 5 seconds (watched_runs.cc), and which
/// log of two is the newer one is told by such times.
inline constexpr double kMostSecondsOff = 5;

/// The trainings of RunSelfTest.
NumericsHealth ExamineNumerics(
    std::span<const KnownNumerics> known = AllKnownNumerics());

/// `processes` of the job share this machine and need `needs.memory` each.
/// Writes, reads and compares a block of at most 256 MiB, a quarter of what is
/// available.
MemoryHealth ExamineMemory(const JobNeeds& needs, int processes);

/// Writes a file of 8 MiB in `folder`, or in the nearest folder above that is
/// there, and compares what comes back. The file has no name once it is open,
/// so that nothing of it can be left behind.
DiskHealth WriteAndReadBack(const std::filesystem::path& folder,
                            const JobNeeds& needs);

/// `examine()`, on a thread of its own: a file system that does not answer
/// keeps its caller for ever. After `longest` it is a problem, and the thread
/// is left behind.
DiskHealth ExamineDiskWithin(std::chrono::duration<double> longest,
                             std::function<DiskHealth()> examine);

/// Seconds since 1970 by this machine's clock.
double WallSeconds();

}  // namespace isoloss::campaign
