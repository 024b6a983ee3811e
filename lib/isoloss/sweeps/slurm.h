// Starts sweeps as job arrays of Slurm.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/sweeps/sweep.h"

namespace isoloss::sweeps {

/// Returns array.sh, of which each element is one line of elements.txt, and
/// judge.sh.
std::vector<Script> SlurmScripts(const Sweep& sweep);

/// Returns the calls of sbatch that StartOnSlurm makes, with JOB1, JOB2, ...
/// in place of ids.
std::string SbatchText(const Sweep& sweep);

/// Returns the most elements that an array may have here, MaxArraySize - 1, as
/// Slurm says. The result is empty if Slurm says nothing.
std::optional<size_t> MostElements();

/// Returns the ids of jobs that an earlier call has started for a sweep and
/// that have not ended.
std::vector<std::string> LiveJobs(const Sweep& sweep);

struct SlurmJobs {
  std::string array;  ///< "" if all runs have finished
  std::string judge;  ///< "" if nothing is judged
};

/// Submits an array of the elements, and the job that judges once the array
/// has ended, with or without success. Writes their ids to jobs.txt. If the
/// second job is refused the first is cancelled.
/// Errors   ConfigError that says what sbatch said.
SlurmJobs StartOnSlurm(const Sweep& sweep);

}  // namespace isoloss::sweeps
