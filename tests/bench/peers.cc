#include "peers.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "isoloss/kernels/targets.h"
#include "peer_libraries.h"

namespace isoloss::bench {
namespace {

struct Variable {
  const char* name;
  const char* value;
};

bool IsSet(const Variable& variable) {
  const char* value = std::getenv(variable.name);
  return value != nullptr && std::string_view(value) == variable.value;
}

const char* OpenBlasCore() {
  const std::string best = kernels::SupportedTargets().front();
  return best == "avx3" ? "SkylakeX" : best == "avx2" ? "Haswell" : nullptr;
}

}  // namespace

std::vector<Peer> Peers() { return {OpenBlas(), EigenLibrary(), OneDnn()}; }

void StartWithFastestPeers(char** argv) {
  std::vector<Variable> variables = {{"OMP_NUM_THREADS", "1"},
                                     {"OPENBLAS_NUM_THREADS", "1"}};
  if (const char* core = OpenBlasCore()) {
    variables.push_back({"OPENBLAS_CORETYPE", core});
  }
  bool complete = true;
  for (const Variable& variable : variables) {
    complete = complete && IsSet(variable);
    setenv(variable.name, variable.value, 1);
  }
  if (complete) return;
  // The libraries read it while they are loaded.
  execv("/proc/self/exe", argv);
  std::perror("gemm_bench: cannot restart itself with OPENBLAS_CORETYPE set");
  std::exit(2);
}

}  // namespace isoloss::bench
