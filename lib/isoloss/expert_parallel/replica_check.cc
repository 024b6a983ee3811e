#include "isoloss/expert_parallel/replica_check.h"

#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/expert_parallel/collectives.h"

namespace isoloss::expert_parallel {
namespace {

/// Process p must have the digest of process p % holders.
void RequireCopies(const Mesh& mesh, uint64_t digest, size_t holders,
                   const char* what) {
  if (holders == mesh.processes()) return;
  const std::vector<uint64_t> digests = GatherDigests(mesh, digest);
  for (size_t p = holders; p < digests.size(); ++p) {
    const size_t other = p % holders;
    if (digests[p] == digests[other]) continue;
    ThrowError(
        ErrorKind::kTransport,
        "step {}, replica check: {} of process {} (digest {}) are not "
        "those of process {} ({}), but replicas must agree to the bit. A "
        "gradient was not reduced, or a process computed wrongly.",
        mesh.transport()->step(), what, p, DigestToHex(digests[p]), other,
        DigestToHex(digests[other]));
  }
}

}  // namespace

void CheckReplicas(const Mesh& mesh, uint64_t digest, const char* what) {
  RequireCopies(mesh, digest, 1, what);
}

void CheckExpertReplicas(const Mesh& mesh, uint64_t digest) {
  RequireCopies(mesh, digest, mesh.ProcessesOfGroup().size(),
                "weights of experts");
}

}  // namespace isoloss::expert_parallel
