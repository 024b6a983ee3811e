// Was this process started alone, or as one of several by an MPI launcher?
#pragma once

#include <string>
#include <vector>

namespace isoloss::transport {

struct Launch {
  int processes = 1;
  int process = 0;
  std::string launcher;  ///< "Open MPI", "MPICH", or "" for a lone process
};

/// From the environment that mpirun, mpiexec and srun leave; starts nothing.
Launch DetectLaunch();

/// "The launcher (process 123, mpirun) is stopped." of a process above this
/// one;
/// "" if none of them is. A launcher that does
/// not run ends no job and hands on no output and no exit code.
std::string LauncherTrouble();

/// The MPI libraries that this build can load a module for: "openmpi", "mpich".
std::vector<std::string> MpiModules();

/// Whether other processes are connected with this one by a transport `mpi` and
/// would wait for it, were it to end now.
bool JobHasPeers();

/// Exit code of a job that lost a process or a message: "start me again".
inline constexpr int kStartAgain = 75;  // EX_TEMPFAIL

/// Ends the whole job because this process cannot go on: writes `reason` to
/// abort-process<p>.txt in the reason folder of the last transport `mpi`, then
/// has MPI end all processes with `code`, after a moment in which others whose
/// deadline is the same can write their reasons. Not by the exit code alone,
/// because launchers may lose it. Takes at most some two seconds: then this
/// process ends with `code`, whatever MPI and the launcher do. To be called by
/// the thread that made the transport. Without peers it just ends this process.
/// Source   docs/distributed.md, "Failures".
[[noreturn]] void EndJob(const std::string& reason, int code = kStartAgain);

}  // namespace isoloss::transport
