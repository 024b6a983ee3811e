// Detects whether this process was started alone, or as one of several by an
// MPI launcher.
#pragma once

#include <string>
#include <vector>

namespace isoloss::transport {

struct Launch {
  int processes = 1;
  int process = 0;
  std::string launcher;  ///< "Open MPI", "MPICH", or "" for a lone process
};

/// Reads the environment that mpirun, mpiexec and srun leave; starts nothing.
Launch DetectLaunch();

/// Returns "The launcher (process 123, mpirun) is stopped." if a process above
/// this one is stopped; "" if none is. A stopped launcher ends no job and hands
/// on no output and no exit code.
std::string LauncherTrouble();

/// Returns the MPI libraries for which this build can load a module: "openmpi",
/// "mpich".
std::vector<std::string> MpiModules();

/// Returns whether a transport `mpi` connects this process with peers, which
/// would wait for it if it ended now.
bool JobHasPeers();

/// A job exits with this code if it lost a process or a message: "start me
/// again".
inline constexpr int kStartAgain = 75;  // EX_TEMPFAIL

/// Ends the whole job because this process cannot go on. Writes `reason` to
/// abort-process<p>.txt in the reason folder of the last transport `mpi`. After
/// a moment, in which other processes with the same deadline can write their
/// reasons, MPI ends all processes with `code`. The exit code alone is not
/// enough, because launchers may lose it. After some two seconds this process
/// ends with `code`, whatever MPI and the launcher do. The thread that made the
/// transport must call this function. Without peers it just ends this process.
/// Source   docs/distributed.md, "Failures".
[[noreturn]] void EndJob(const std::string& reason, int code = kStartAgain);

}  // namespace isoloss::transport
