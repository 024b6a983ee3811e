// Other libraries' FP32 matrix product, to compare ours with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"

namespace isoloss::bench {

/// y [m, n] = x [m, k] W^T, W [n, k], all row-major: the product of a linear
/// layer, each library told of the transposition in its own way.
struct PeerProduct {
  MatrixView<const float> x;
  MatrixView<const float> w;
  MatrixView<float> y;
};

struct Peer {
  std::string name;     ///< "openblas"
  std::string version;  ///< with the code path that the library chose
  /// Returns the call to time; what can be done once is done here. The call
  /// stays on the calling thread.
  std::function<void()> (*prepare)(const PeerProduct&);
};

/// All of them; none if the build has no peers (ISOLOSS_BENCHMARK_PEERS).
std::vector<Peer> Peers();

/// Restarts the program, at most once, with the environment in which the peers
/// are fastest on one thread: OpenBLAS takes a newer processor for one without
/// AVX-512 unless told. Call first thing in main.
void StartWithFastestPeers(char** argv);

}  // namespace isoloss::bench
