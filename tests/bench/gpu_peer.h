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
  /// Begins the same on tensor cores: matrices of BF16, two in a word, whose
  /// rows have so many words. W has the words of x.
  void BeginBf16(MatrixView<const float> x, MatrixView<const float> w,
                 MatrixView<float> y);
  /// Waits for the product that was begun last.
  void Wait();

 private:
  template <typename Function>
  void Find(void* library, const char* name, Function*& function);

  void Began(const char* function, int status, MatrixView<float> y);

  std::string problem_;
  void* handle_ = nullptr;
  MatrixView<float> last_;
  int (*create_)(void** handle) = nullptr;
  int (*multiply_)(void* handle, int transpose_a, int transpose_b, int m, int n,
                   int k, const float* alpha, const float* a, int stride_a,
                   const float* b, int stride_b, const float* beta, float* c,
                   int stride_c) = nullptr;
  int (*multiply_any_)(void* handle, int transpose_a, int transpose_b, int m,
                       int n, int k, const void* alpha, const void* a,
                       int type_a, int stride_a, const void* b, int type_b,
                       int stride_b, const void* beta, void* c, int type_c,
                       int stride_c, int compute, int algorithm) = nullptr;
  int (*download_)(int count, int bytes, const void* from, int step, void* to,
                   int to_step) = nullptr;
};

}  // namespace isoloss::bench
