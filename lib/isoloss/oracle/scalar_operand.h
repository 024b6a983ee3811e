// Operands as products read them, from the oracle's own quantisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::oracle {

/// One side of a product, as a step announced it.
struct ScalarOperand {
  /// Rows are operand rows; or steps of the contraction, if it runs `down`.
  MatrixView<const float> values;
  bool down = false;
  const formats::Quantization* quantization = nullptr;  ///< null: none
  /// As the operand's tensors share it; each has a stream of its own.
  formats::TensorState state = {};
  /// Number of the first one in the whole batch.
  size_t first_tensor = 0;
  /// Ends of the tensors among operand rows; empty: one. Of an operand that
  /// runs `down`, each segment of the product is one.
  std::span<const size_t> tensor_ends = {};
  /// What was done along the rows of `values` before; null: nothing.
  const formats::Quantization* before = nullptr;
  formats::TensorState state_before = {};
};

/// State of the operand's tensor of that number, whose stream is a value of the
/// one that the operand's tensors share.
formats::TensorState StateOfTensor(formats::TensorState shared, size_t number);

/// How the steps of a product are cut.
struct ScalarPieces {
  struct Piece {
    size_t segment;
    size_t begin;
    size_t end;
  };
  /// Where segments end among the stored steps.
  std::vector<size_t> stored_ends;
  /// Where they begin among the steps that are multiplied: a transform fills
  /// them up to whole runs. One more at the end.
  std::vector<size_t> begins = {0};
  /// In order; a segment without steps has one piece without steps.
  std::vector<Piece> pieces;

  size_t depth() const { return begins.back(); }
};

/// Pieces end where a scale of sums may change and where sums are promoted.
/// `ends`: of the segments; empty: one of `depth` steps.
/// Errors   ShapeError if lengths are no multiples of the shortest, or if only
///          one side is transformed.
ScalarPieces PiecesOf(const formats::Quantization* a,
                      const formats::Quantization* b, size_t interval,
                      std::span<const size_t> ends, size_t depth);

struct PreparedSide {
  Matrix<float> values;   ///< [operand rows, depth]
  Matrix<float> factors;  ///< of sums, [operand rows, pieces]; empty: 1
  /// Exponents that tensor cores see: of the code's field and of its scale's,
  /// subnormals as the smallest normal. [operand rows, depth]
  Matrix<int16_t> exponents;

  float Factor(size_t row, size_t piece) const {
    return factors.size() == 0 ? 1.0f : factors(row, piece);
  }
};

/// `exponents`: whether they are asked for.
PreparedSide PrepareSide(const ScalarOperand& operand,
                         const ScalarPieces& pieces, bool exponents);

}  // namespace isoloss::oracle
