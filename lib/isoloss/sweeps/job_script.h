// Holds the text of job.sh, which lies beside this file.
#pragma once

namespace isoloss::sweeps {

/// The script runs one job of Slurm, which goes on after faults.
extern const char* const kJobScript;

}  // namespace isoloss::sweeps
