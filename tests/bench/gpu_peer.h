// cuBLAS, which is loaded where it is installed: no program needs it.
#pragma once

#include <string>

#include "isoloss/base/matrix.h"

namespace isoloss::bench {

class Cublas {
 public:
  /// Without the library it has a problem().
  Cublas();

  /// Says why nothing can be measured beside it; empty if all is well.
  const std::string& problem() const { return problem_; }

  /// Begins y [m, n] = x [m, k] W^T, W [n, k], in FP32, without TF32: all lie
  /// densely in the memory of the GPU that the thread uses.
  void Begin(MatrixView<const float> x, MatrixView<const float> w,
             MatrixView<float> y);
  /// Waits for the product that was begun last.
  void Wait();

 private:
  template <typename Function>
  void Find(void* library, const char* name, Function*& function);

  std::string problem_;
  void* handle_ = nullptr;
  MatrixView<float> last_;
  int (*create_)(void** handle) = nullptr;
  int (*multiply_)(void* handle, int transpose_a, int transpose_b, int m, int n,
                   int k, const float* alpha, const float* a, int stride_a,
                   const float* b, int stride_b, const float* beta, float* c,
                   int stride_c) = nullptr;
  int (*download_)(int count, int bytes, const void* from, int step, void* to,
                   int to_step) = nullptr;
};

}  // namespace isoloss::bench
