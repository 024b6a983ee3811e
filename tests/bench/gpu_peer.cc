#include "gpu_peer.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "isoloss/base/error.h"

namespace isoloss::bench {
namespace {

// These are values of cublasOperation_t.
constexpr int kPlain = 0;
constexpr int kTransposed = 1;
// These are values of cudaDataType, cublasComputeType_t and cublasGemmAlgo_t.
constexpr int kBf16 = 14;
constexpr int kSumsInFp32 = 68;
constexpr int kOwnChoice = -1;

void* Load() {
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so",
                           "/usr/local/cuda/lib64/libcublas.so"}) {
    if (void* library = dlopen(name, RTLD_NOW)) return library;
  }
  return nullptr;
}

}  // namespace

template <typename Function>
void Cublas::Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) problem_ = fmt::format("cuBLAS has no {}", name);
}

Cublas::Cublas() {
  void* const library = Load();
  if (library == nullptr) {
    problem_ = "cuBLAS is not in the search path for libraries";
    return;
  }
  Find(library, "cublasCreate_v2", create_);
  Find(library, "cublasSgemm_v2", multiply_);
  Find(library, "cublasGemmEx", multiply_any_);
  Find(library, "cublasGetVector", download_);
  if (!problem_.empty()) return;
  if (const int status = create_(&handle_); status != 0) {
    problem_ = fmt::format("cuBLAS does not start: status {}", status);
  }
}

void Cublas::Begin(MatrixView<const float> x, MatrixView<const float> w,
                   MatrixView<float> y) {
  // Its matrices are column by column, so that ours look transposed.
  const float one = 1.0f;
  const float zero = 0.0f;
  const auto m = static_cast<int>(w.rows());
  const auto n = static_cast<int>(x.rows());
  const auto k = static_cast<int>(x.cols());
  const int status = multiply_(handle_, kTransposed, kPlain, m, n, k, &one,
                               w.data(), k, x.data(), k, &zero, y.data(), m);
  Began("cublasSgemm", status, y);
}

void Cublas::BeginBf16(MatrixView<const float> x, MatrixView<const float> w,
                       MatrixView<float> y) {
  const float one = 1.0f;
  const float zero = 0.0f;
  const auto m = static_cast<int>(w.rows());
  const auto n = static_cast<int>(x.rows());
  const auto k = static_cast<int>(2 * x.cols());
  const int status = multiply_any_(
      handle_, kTransposed, kPlain, m, n, k, &one, w.data(), kBf16, k, x.data(),
      kBf16, k, &zero, y.data(), kBf16, m, kSumsInFp32, kOwnChoice);
  Began("cublasGemmEx", status, y);
}

void Cublas::Began(const char* function, int status, MatrixView<float> y) {
  if (status != 0) {
    ThrowError(ErrorKind::kConfig, "{} answered {}. Look at the GPU's state.",
               function, status);
  }
  last_ = y;
}

void Cublas::Wait() {
  // A copy to the host waits for what was begun before.
  float value = 0.0f;
  download_(1, sizeof value, last_.data(), 1, &value, 1);
}

}  // namespace isoloss::bench
