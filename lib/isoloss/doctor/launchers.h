// Finds programs that start jobs of several processes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isoloss::doctor {

struct Launcher {
  std::string name;            ///< as a shell finds it: "mpirun"
  std::filesystem::path path;  ///< where
  std::string library = {};    ///< "Open MPI", "MPICH", or "" for another
  std::string version = {};    ///< "4.1.4"; "" if it did not say
};

/// Returns mpirun and mpiexec, and Debian's names for those of each library, if
/// they are installed. If a program has several names, the first counts.
std::vector<Launcher> FindMpiLaunchers();

/// Sets library and version from `said`, which the launcher prints about
/// itself.
void ReadLauncherVersion(const std::string& said, Launcher& launcher);

struct Slurm {
  bool found = false;        ///< is srun there?
  std::string version = {};  ///< "22.05.8"; "" if it did not say
  std::string job = {};      ///< id of the allocation that this is in, or ""
  std::string tasks = {};
  std::string nodes = {};
};

Slurm ExamineSlurm();

}  // namespace isoloss::doctor
