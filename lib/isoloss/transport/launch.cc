#include "isoloss/transport/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace isoloss::transport {
namespace {

/// Reads a whole number from the environment; -1 if it is not set or not one.
int NumberFrom(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value >= 0 && value <= 1 << 20
             ? static_cast<int>(value)
             : -1;
}

}  // namespace

Launch DetectLaunch() {
  struct Launcher {
    const char* name;
    const char* size;
    const char* index;
  };
  // srun sets PMI_* for MPICH, and PMIX_* and these SLURM_* for Open MPI.
  constexpr Launcher kLaunchers[] = {
      {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
      {"MPICH", "PMI_SIZE", "PMI_RANK"},
  };
  for (const Launcher& launcher : kLaunchers) {
    const int size = NumberFrom(launcher.size);
    const int index = NumberFrom(launcher.index);
    if (size >= 1 && index >= 0) return {size, index, launcher.name};
  }
  // Under srun with PMIx, Open MPI's own variables appear only once MPI runs.
  if (std::getenv("PMIX_RANK") != nullptr) {
    const int size = NumberFrom("SLURM_NTASKS");
    const int index = NumberFrom("SLURM_PROCID");
    if (size >= 1 && index >= 0) return {size, index, "Open MPI"};
  }
  return {};
}

std::string LauncherTrouble() {
  constexpr int kMostAbove = 8;  // mpirun, its proxy, a batch script's shells
  pid_t process = getppid();
  for (int above = 0; above < kMostAbove && process > 1; ++above) {
    // The line reads "123 (name of any bytes) T 122 ...".
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t begin = text.find('(');
    const size_t end = text.rfind(") ");
    if (begin == std::string::npos || end == std::string::npos) return "";
    if (const char state = text[end + 2]; state == 'T' || state == 't') {
      return fmt::format("The launcher (process {}, {}) is stopped.", process,
                         text.substr(begin + 1, end - begin - 1));
    }
    process =
        static_cast<pid_t>(std::strtol(text.c_str() + end + 3, nullptr, 10));
  }
  return "";
}

}  // namespace isoloss::transport
