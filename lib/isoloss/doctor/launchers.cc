#include "isoloss/doctor/launchers.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <system_error>
#include <utility>

#include "isoloss/system/child_process.h"

namespace isoloss::doctor {
namespace {

namespace fs = std::filesystem;

std::string EnvironmentText(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string LastWordOfFirstLine(const std::string& text) {
  std::istringstream stream(text.substr(0, text.find('\n')));
  std::string last;
  for (std::string word; stream >> word;) last = word;
  return last;
}

}  // namespace

void ReadLauncherVersion(const std::string& said, Launcher& launcher) {
  if (said.find("(Open MPI)") != std::string::npos) {
    launcher.library = "Open MPI";
    launcher.version = LastWordOfFirstLine(said);
  } else if (said.find("HYDRA") != std::string::npos) {
    launcher.library = "MPICH";
    constexpr std::string_view kName = "Version:";
    if (const size_t begin = said.find(kName); begin != std::string::npos) {
      std::istringstream(said.substr(begin + kName.size())) >> launcher.version;
    }
  }
}

std::vector<Launcher> FindMpiLaunchers() {
  constexpr const char* kNames[] = {"mpirun", "mpiexec", "mpirun.openmpi",
                                    "mpirun.mpich"};
  std::vector<Launcher> launchers;
  std::vector<fs::path> files;
  for (const char* name : kNames) {
    Launcher launcher{.name = name, .path = system::FindProgram(name)};
    if (launcher.path.empty()) continue;
    std::error_code error;
    const fs::path file = fs::canonical(launcher.path, error);
    if (error || std::ranges::count(files, file) > 0) continue;
    files.push_back(file);
    ReadLauncherVersion(system::OutputOf({launcher.path.string(), "--version"}),
                        launcher);
    launchers.push_back(std::move(launcher));
  }
  return launchers;
}

Slurm ExamineSlurm() {
  Slurm slurm;
  slurm.job = EnvironmentText("SLURM_JOB_ID");
  slurm.tasks = EnvironmentText("SLURM_NTASKS");
  slurm.nodes = EnvironmentText("SLURM_JOB_NUM_NODES");
  const fs::path srun = system::FindProgram("srun");
  slurm.found = !srun.empty();
  if (slurm.found) {
    slurm.version =
        LastWordOfFirstLine(system::OutputOf({srun.string(), "--version"}));
  }
  return slurm;
}

}  // namespace isoloss::doctor
