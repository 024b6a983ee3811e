// Products on the GPU that figures are about.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu_figures.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/kernels/gemm.h"
#include "products.h"

namespace isoloss::bench {

/// What operands of a product are, and how it is summed.
struct ProductKind {
  Precision precision;
  const kernels::Accumulator* accumulator = nullptr;  ///< null: FP32 chains
};

/// y = x W^T on the GPU.
class GpuProduct {
 public:
  GpuProduct(const GemmSize& size, Executor& gpu);

  const Matrix<float>& host_x() const { return host_x_; }
  const Matrix<float>& host_w() const { return host_w_; }
  MatrixView<const float> x() const { return x_.view(); }
  MatrixView<const float> w() const { return w_.view(); }
  Matrix<float>& y() { return y_; }

  kernels::GemmProblem Problem(const ProductKind& kind);

  /// Compares some elements of y with the CPU's: each depends on one row of x
  /// and one of W only.
  void Compare(const ProductKind& kind, Differences& differences) const;

 private:
  Matrix<float> host_x_, host_w_;
  Matrix<float> x_, w_, y_;
};

/// Returns the experts of a layer of the 16B, and their operations.
struct GpuExperts {
  std::vector<std::unique_ptr<GpuProduct>> products;
  double flops = 0.0;
};
GpuExperts MakeGpuExperts(Executor& gpu);

/// Computes them as one batch, and compares them with the CPU.
Figure ExpertFigure(GpuExperts& experts, const ProductKind& kind,
                    const std::string& name, double bar, Executor& gpu);

std::string TeraFlops(double flops, double seconds);

}  // namespace isoloss::bench
