// Defines how operands are quantised as wholes, and how their products are cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/accumulator.h"
#include "isoloss/kernels/operand.h"

namespace isoloss::kernels {

/// The contraction axis of a product has segments, which are summed on their
/// own, and pieces of segments, whose sums are scaled and added to the
/// segment's sum. A transform extends segments to whole runs of it.
struct Pieces {
  /// Segments end here among the stored steps.
  std::vector<size_t> stored_ends;
  /// Segments end here among the steps that are multiplied.
  std::vector<size_t> segment_ends;
  /// A piece has this number of steps, except that the last piece of a segment
  /// may be shorter; 0 means that segments are whole.
  size_t length = 0;

  size_t depth() const {
    return segment_ends.empty() ? 0 : segment_ends.back();
  }
  size_t SegmentBegin(size_t segment) const {
    return segment == 0 ? 0 : segment_ends[segment - 1];
  }
  /// Calls use(segment, begin, end) for each piece, in order. A segment without
  /// a step has one piece without a step.
  template <typename Use>
  void ForEach(const Use& use) const {
    for (size_t s = 0; s < segment_ends.size(); ++s) {
      size_t begin = SegmentBegin(s);
      do {
        const size_t left = segment_ends[s] - begin;
        const size_t count = length == 0 || left < length ? left : length;
        use(s, begin, begin + count);
        begin += count;
      } while (begin < segment_ends[s]);
    }
  }
  size_t count() const;
};

/// The sums of a product may be cut after these numbers of steps. 0 means that
/// they are not cut.
struct PieceSteps {
  size_t scales_of_a;  ///< a scale may change that multiplies sums
  size_t scales_of_b;
  size_t promotion;
  size_t least;    ///< of those that are not 0; 0 if all are
  bool multiples;  ///< all are multiples of the least
};

/// Null means an operand that is not quantised.
PieceSteps PieceStepsOf(const formats::Quantization* a,
                        const formats::Quantization* b,
                        const Accumulation& accumulation);

/// Returns the pieces of a product. Their length is the least among the
/// interval of the accumulation and the operands' cells that scale sums; all
/// these lengths must be multiples of it.
/// Errors   ShapeError if they are not, or if only one operand is transformed.
Pieces PiecesOf(const formats::Quantization* a, const formats::Quantization* b,
                const Accumulation& accumulation,
                std::span<const size_t> segment_ends);

/// Holds an operand as its products read it.
struct PreparedOperand {
  Matrix<float> values;  ///< [extent, depth], rows are operand rows
  /// The sum over each piece is multiplied by its factor, [extent, pieces];
  /// empty means 1.
  Matrix<float> factors;
  Matrix<int16_t> exponents;  ///< [extent, depth], or empty: of the values
  /// Panels of rows, for vectors that add as an accumulator does
  /// (kernels/fused_gemm.h); else empty. Their layout belongs to the kernel
  /// target that was active when they were packed.
  Matrix<float> panel_values;
  Matrix<int32_t> panel_exponents;

  /// Returns steps of a row as an accumulator reads them, from `step` on.
  Elements From(size_t row, size_t step) const {
    return {values.Row(row) + step,
            exponents.size() == 0 ? nullptr : exponents.Row(row) + step};
  }
};

/// A range counts operand rows or stored steps.
struct Range {
  size_t begin;
  size_t end;

  size_t size() const { return end - begin; }
};

/// A cut is a part of an operand that is one tensor, beyond which no scale
/// reaches.
struct TensorCut {
  size_t number;
  Range rows;
  Range steps;
  /// These steps of the cut are among the steps that are multiplied.
  Range prepared_steps;
};

/// Returns the tensors of an operand: each range of rows by tensor_ends, if its
/// rows are stored as rows, and each segment of its steps.
std::vector<TensorCut> CutsOf(const Operand& operand, const Pieces& pieces);

/// Makes room for the operand and for exponents of that kind.
void Resize(const Operand& operand, const Pieces& pieces,
            FactorExponents exponents, PreparedOperand& prepared);

/// Quantises one tensor of the operand as formats::Quantize says, or copies a
/// tensor that is not to be quantised.
void PrepareTensorScalar(const Operand& operand, const Pieces& pieces,
                         const TensorCut& cut, FactorExponents exponents,
                         PreparedOperand& prepared);

/// Prepares all tensors of the operand.
void PrepareScalar(const Operand& operand, const Pieces& pieces,
                   FactorExponents exponents, PreparedOperand& prepared);

/// Writes the factors by which the sums over the cells of a tensor are
/// multiplied, piece by piece.
/// Shapes   scales [cells].
void WriteFactors(const formats::Quantization& quantization,
                  MatrixView<const float> scales, float tensor_scale,
                  const Pieces& pieces, const TensorCut& cut,
                  PreparedOperand& prepared);

}  // namespace isoloss::kernels
