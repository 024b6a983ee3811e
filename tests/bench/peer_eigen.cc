// Compiled for all that this processor has (CMakeLists.txt).
#include <Eigen/Core>

#include "peer_libraries.h"

namespace isoloss::bench {
namespace {

using RowMajor =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename Matrix, typename T>
Eigen::Map<Matrix> MapOf(MatrixView<T> view) {
  return Eigen::Map<Matrix>(view.data(), static_cast<Eigen::Index>(view.rows()),
                            static_cast<Eigen::Index>(view.cols()));
}

std::function<void()> Prepare(const PeerProduct& p) {
  return [p] {
    MapOf<RowMajor>(p.y).noalias() =
        MapOf<const RowMajor>(p.x) * MapOf<const RowMajor>(p.w).transpose();
  };
}

}  // namespace

Peer EigenLibrary() {
  const std::string version = std::to_string(EIGEN_WORLD_VERSION) + "." +
                              std::to_string(EIGEN_MAJOR_VERSION) + "." +
                              std::to_string(EIGEN_MINOR_VERSION);
  return {"eigen", version + ", " + Eigen::SimdInstructionSetsInUse(), Prepare};
}

}  // namespace isoloss::bench
