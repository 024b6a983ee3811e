// One GEMM for every precision: operands are quantised along the contraction
// axis while they are packed, and multiplied in FP32.
#pragma once

#include <cstddef>
#include <span>

#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::kernels {

/// Along which side of the stored matrix the contraction index k runs.
enum class Contraction {
  kColumns,  ///< values [extent, k]: row i holds operand row i
  kRows,     ///< values [k, extent]: column i holds operand row i
};

/// One side of a product.
struct Operand {
  MatrixView<const float> values;
  Contraction contraction = Contraction::kColumns;
  /// Quantise-dequantise in blocks of 32 along k before multiplying; nullptr
  /// takes the values as they are.
  const formats::Quantization* mx = nullptr;

  /// Number of operand rows (output rows for a, output columns for b).
  size_t extent() const {
    return contraction == Contraction::kColumns ? values.rows() : values.cols();
  }
  /// Length of the contraction axis.
  size_t depth() const {
    return contraction == Contraction::kColumns ? values.cols() : values.rows();
  }
};

/// The right side of products, packed and quantised once for many of them:
/// weights, which every token and every thread of a step meets again. The
/// layout belongs to the kernel target that was active when it was packed.
class PackedOperand {
 public:
  /// Packs and, if the operand says so, quantises it. Memory is reused.
  void Pack(const Operand& operand);

  size_t extent() const { return extent_; }
  size_t depth() const { return depth_; }
  bool quantized() const { return quantized_; }
  /// Operand rows per panel; a panel holds element (row, k) at [k * width +
  /// row].
  size_t panel_width() const { return panel_width_; }
  const float* Panel(size_t panel) const { return panels_.Row(panel); }
  /// Element k of operand row `row`.
  float At(size_t row, size_t k) const {
    return Panel(row / panel_width_)[k * panel_width_ + row % panel_width_];
  }

 private:
  size_t extent_ = 0;
  size_t depth_ = 0;
  size_t panel_width_ = 1;
  bool quantized_ = false;
  Matrix<float> panels_;  // [panels, depth * panel_width]
};

/// c[i, j] = sum over k of a_i[k] * b_j[k].
///
/// Definition (GemmScalar is its text): the k axis is cut into segments. In
/// each, acc = fma(a_i[k], b_j[k], acc) for ascending k from acc = +0. Segment
/// sums go up the aligned binary tree over the segment index (kernels/tree.h)
/// in FP32. The result is rounded once as `rounding` says. MX blocks start anew
/// at the start of every segment; a last block may be short.
///
/// Shapes   a.extent() = c.rows(), b.extent() = c.cols(),
///          a.depth() = b.depth(); addend as c.
/// Special  depth 0 (or no segment) gives c = +0. NaN payloads are not defined.
/// Errors   ShapeError naming all extents, or the ends if they do not ascend
///          to the depth or meet a packed b.
/// Exact    bits depend on the arguments only.
struct GemmProblem {
  Operand a;
  Operand b = {};
  MatrixView<float> c;
  Rounding rounding = Rounding::kFp32;
  /// Ends of the segments, ascending, the last one = depth; an end repeated is
  /// an empty segment, whose sum is +0. Empty: one segment.
  std::span<const size_t> segment_ends = {};
  /// If set, takes the place of b: its first c.cols() rows. One segment only.
  const PackedOperand* packed_b = nullptr;
  /// If not empty, added to the rounded sum with one more rounding:
  /// c = round(addend + round(sum)). May be c itself.
  MatrixView<const float> addend = {};
};

/// The definition: scalar, obvious, slow.
void GemmScalar(const GemmProblem& problem);

/// One product on the calling thread.
void Gemm(const GemmProblem& problem);

/// Independent products, divided among the team's threads in equal shares of
/// work; products go to threads whole where that can be. Products with the same
/// left or the same right operand pack and quantise it once.
void GemmBatch(std::span<const GemmProblem> problems, ThreadTeam& team);

}  // namespace isoloss::kernels
