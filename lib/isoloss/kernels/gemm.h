// One GEMM for every precision: operands are quantised along the contraction
// axis while they are packed, and multiplied in FP32.
#pragma once

#include <cstddef>
#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/kernels/accumulator.h"
#include "isoloss/kernels/operand.h"
#include "isoloss/kernels/prepared_operand.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::kernels {

/// Holds the right side of products, packed and quantised once for many of
/// them. It serves weights, which every token and every thread of a step meets
/// again. The layout belongs to the kernel target that was active when it was
/// packed.
class PackedOperand {
 public:
  /// Packs the operand, and quantises it if the operand says so. It serves
  /// products with left sides quantised as `left` and sums as `accumulation`.
  /// Memory is reused.
  void Pack(const Operand& operand, const formats::Quantization* left = nullptr,
            const Accumulation& accumulation = {});

  size_t extent() const { return extent_; }
  size_t depth() const { return depth_; }
  /// Returns null if the operand is not quantised.
  const formats::Quantization* quantization() const { return quantization_; }
  /// Packed kernels do not take some operands and products; this then replaces
  /// the panels. Null means that there are panels.
  const PreparedOperand* prepared() const {
    return is_prepared_ ? &prepared_ : nullptr;
  }
  /// A panel holds element (row, k) at [k * panel_width + row].
  const float* Panel(size_t panel) const { return panels_.Row(panel); }
  /// Returns element k of operand row `row`.
  float At(size_t row, size_t k) const {
    return Panel(row / panel_width_)[k * panel_width_ + row % panel_width_];
  }

 private:
  size_t extent_ = 0;
  size_t depth_ = 0;
  size_t panel_width_ = 1;  // operand rows per panel
  const formats::Quantization* quantization_ = nullptr;
  bool is_prepared_ = false;
  PreparedOperand prepared_;
  Matrix<float> panels_;  // [panels, depth * panel_width]
};

/// c[i, j] = sum over k of a_i[k] * b_j[k].
///
/// Definition (GemmScalar is its text): the k axis is cut into segments, and
/// segments into pieces (PiecesOf). In each piece, either an accumulator adds,
/// or acc = fma(a_i[k], b_j[k], acc) for ascending k from acc = +0. If operands
/// have scales for sums, acc is multiplied by fl(fa * fb), fused with the
/// addition to the pieces before. Their sum is rounded as accumulation.outer
/// says. Segment sums go up the aligned binary tree over the
/// segment index (kernels/tree.h) in FP32. The result is rounded once as
/// `rounding` says. Scales and transforms start anew at each segment.
///
/// Shapes   a.extent() = c.rows(), b.extent() = c.cols(),
///          a.depth() = b.depth(); addend as c.
/// Special  depth 0 (or no segment) gives c = +0. NaN payloads are not defined.
/// Errors   ShapeError naming all extents, or the ends if they do not ascend
///          to the depth or meet a packed b; as PiecesOf.
/// Exact    bits depend on the arguments only.
struct GemmProblem {
  Operand a;
  Operand b = {};
  MatrixView<float> c;
  Rounding rounding = Rounding::kFp32;
  Accumulation accumulation = {};
  /// Segments end here, ascending, the last one at depth; an end repeated is an
  /// empty segment, whose sum is +0. Empty means one segment.
  std::span<const size_t> segment_ends = {};
  /// If set, its first c.cols() rows replace b. There may be one segment only,
  /// and it must be packed for a's quantisation and this accumulation. a is not
  /// rounded then.
  const PackedOperand* packed_b = nullptr;
  /// If not empty, this is added to the rounded sum with one more rounding:
  /// c = round(addend + round(sum)). It may be c itself.
  MatrixView<const float> addend = {};

  /// Returns the quantisation of the right side, packed or not.
  const formats::Quantization* right_quantization() const {
    return packed_b != nullptr ? packed_b->quantization() : b.quantization;
  }
  /// Tells whether operands are quantised as they are packed, and sums are
  /// chains.
  bool is_packable() const {
    // Kernels round the right side as they pack it; the left side may be read
    // in place.
    return a.is_packable() && a.rounding == Rounding::kFp32 &&
           accumulation == Accumulation{} &&
           (packed_b != nullptr ? packed_b->prepared() == nullptr
                                : b.is_packable());
  }
};

/// Defines the product: scalar, obvious and slow.
void GemmScalar(const GemmProblem& problem);

/// Computes one product on the calling thread.
void Gemm(const GemmProblem& problem);

/// Computes independent products, divided among the executor's threads in equal
/// shares of work. A product goes to a single thread if possible. Products with
/// the same left or the same right operand pack and quantise it once.
void GemmBatch(std::span<const GemmProblem> problems, Executor& executor);

}  // namespace isoloss::kernels
