// Sweeps as job arrays of Slurm.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/sweeps/sweep.h"

namespace isoloss::sweeps {

/// array.sh, of which each element is one line of elements.txt, and judge.sh.
std::vector<Script> SlurmScripts(const Sweep& sweep);

/// The calls of sbatch that StartOnSlurm makes, with JOB1, JOB2, ... in place
/// of ids.
std::string SbatchText(const Sweep& sweep);

/// The most elements that an array may have here: MaxArraySize - 1, as Slurm
/// says. Empty if it says nothing.
std::optional<size_t> MostElements();

/// Ids of the jobs that an earlier call has started for a sweep and that have
/// not ended.
std::vector<std::string> LiveJobs(const Sweep& sweep);

struct SlurmJobs {
  std::string array;  ///< "" if all runs have finished
  std::string judge;  ///< "" if nothing is judged
};

/// Submits an array of the elements, and the job that judges when the array has
/// ended, however it did. Remembers them in jobs.txt. If the second is refused
/// the first is cancelled.
/// Errors   ConfigError that says what sbatch said.
SlurmJobs StartOnSlurm(const Sweep& sweep);

}  // namespace isoloss::sweeps
