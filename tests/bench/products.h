// Matrix products to time: a linear layer, its weight gradient, the experts of
// a layer. Values are random and BF16-representable, as in a training step.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/gemm.h"

namespace isoloss::bench {

/// y [m, n] = x [m, k] W^T, W [n, k].
struct GemmSize {
  size_t m;
  size_t n;
  size_t k;

  double flops() const { return 2.0 * static_cast<double>(m * n * k); }
  std::string name() const;  ///< "64x128x256"
};

/// The 64 sizes that docs/performance.md states its fractions for.
std::vector<GemmSize> GridSizes();

/// What the operands of a product are, and when W is packed.
enum class Precision { kBf16, kMxfp8 };
enum class Packing { kInCall, kBeforehand };
const char* PrecisionName(Precision precision);  ///< "bf16", "mxfp8"
const char* PackingName(Packing packing);        ///< "in_call", "prepacked"

/// The operand format of the recipe mxfp8_rceil.
const formats::Quantization& Mxfp8();

Matrix<float> Bf16Noise(size_t rows, size_t cols, uint64_t stream);

/// y = x W^T in each precision and packing, on the same memory.
class LinearProduct {
 public:
  explicit LinearProduct(const GemmSize& size, uint64_t stream = 0);

  /// A view of this object: must not outlive or outmove it.
  kernels::GemmProblem Problem(Precision precision, Packing packing);
  const Matrix<float>& x() const { return x_; }
  const Matrix<float>& w() const { return w_; }
  Matrix<float>& y() { return y_; }

 private:
  Matrix<float> x_, w_, y_;
  kernels::PackedOperand packed_bf16_, packed_mxfp8_;
};

/// dW [m, n] = dy^T x, dy [k, m], x [k, n], in segments of 256 tokens.
class WeightGradient {
 public:
  explicit WeightGradient(const GemmSize& size);

  kernels::GemmProblem Problem(Precision precision);

 private:
  Matrix<float> dy_, x_, dw_;
  std::vector<size_t> ends_;
};

/// Tokens of each of 16 experts, 128 on average.
struct Routing {
  const char* name;
  std::vector<size_t> tokens;
};
/// "routed": drawn as by a router whose experts are 0.55 to 1.8 times as
/// popular as the mean. "extreme": the same with experts of 0, 1, 7 and 500
/// tokens.
std::vector<Routing> Routings();

/// The three forward products of a layer's experts: w1 and w3 [128, 256], w2
/// [256, 128].
class ExpertProducts {
 public:
  explicit ExpertProducts(const Routing& routing);

  std::vector<kernels::GemmProblem> Problems(Precision precision,
                                             Packing packing);
  double flops() const { return flops_; }

 private:
  std::vector<LinearProduct> products_;
  double flops_ = 0.0;
};

}  // namespace isoloss::bench
