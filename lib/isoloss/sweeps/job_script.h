// The text of job.sh, which lies beside this file.
#pragma once

namespace isoloss::sweeps {

/// One job of Slurm that goes on after faults.
extern const char* const kJobScript;

}  // namespace isoloss::sweeps
