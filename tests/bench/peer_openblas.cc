#include <cblas.h>

#include "peer_libraries.h"

namespace isoloss::bench {
namespace {

std::function<void()> Prepare(const PeerProduct& p) {
  const auto m = static_cast<blasint>(p.x.rows());
  const auto n = static_cast<blasint>(p.w.rows());
  const auto k = static_cast<blasint>(p.x.cols());
  return [p, m, n, k] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f,
                p.x.data(), k, p.w.data(), k, 0.0f, p.y.data(), n);
  };
}

}  // namespace

Peer OpenBlas() {
  return {"openblas",
          std::string(openblas_get_config()) + ", core in use " +
              openblas_get_corename(),
          Prepare};
}

}  // namespace isoloss::bench
