// Prepares operands as products read them, from the oracle's own quantisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/oracle/tensor_core.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::oracle {

/// Describes one side of a product as a step announced it.
struct ScalarOperand {
  /// Rows are operand rows, or steps of the contraction if it runs `down`.
  MatrixView<const float> values;
  bool down = false;
  const formats::Quantization* quantization = nullptr;  ///< null: none
  /// If not null, this is the only tensor, quantised already.
  const ScalarTensor* quantized = nullptr;
  /// The operand's tensors share this state; each has a stream of its own.
  formats::TensorState state = {};
  /// The first tensor has this number in the whole batch.
  size_t first_tensor = 0;
  /// Tensors end at these operand rows; empty means one tensor. If the operand
  /// runs `down`, each segment of the product is a tensor.
  std::span<const size_t> tensor_ends = {};
  /// This quantised the rows of `values` before; null if nothing did.
  const formats::Quantization* before = nullptr;
  formats::TensorState state_before = {};
};

/// Returns the state of one tensor of the operand. Its stream is value `number`
/// of the shared stream.
formats::TensorState StateOfTensor(formats::TensorState shared, size_t number);

/// Tells how the steps of a product are cut.
struct ScalarPieces {
  struct Piece {
    size_t segment;
    size_t begin;
    size_t end;
  };
  /// The stored steps have segments that end here.
  std::vector<size_t> stored_ends;
  /// Segments begin here among the steps that are multiplied, since a transform
  /// fills them up to whole runs. The last element is the end.
  std::vector<size_t> begins = {0};
  /// Pieces are in order; a segment without steps has one piece without steps.
  std::vector<Piece> pieces;

  size_t depth() const { return begins.back(); }
};

/// Returns pieces that end where a scale of sums may change and where sums are
/// promoted. Segments end at `ends`; empty means one segment of `depth` steps.
/// Errors   ShapeError if lengths are no multiples of the shortest, or if only
///          one side is transformed.
ScalarPieces PiecesOf(const formats::Quantization* a,
                      const formats::Quantization* b, size_t interval,
                      std::span<const size_t> ends, size_t depth);

struct PreparedSide {
  Matrix<float> values;   ///< [operand rows, depth]
  Matrix<float> factors;  ///< for sums, [operand rows, pieces]; empty: 1
  /// Tensor cores align elements by these numbers. [operand rows, depth]
  Matrix<int16_t> exponents;

  float Factor(size_t row, size_t piece) const {
    return factors.size() == 0 ? 1.0f : factors(row, piece);
  }
  /// Returns what a tensor core reads of a row.
  CoreOperand Steps(size_t row, const ScalarPieces::Piece& piece) const {
    const size_t count = piece.end - piece.begin;
    return {{values.Row(row) + piece.begin, count},
            {exponents.Row(row) + piece.begin, count}};
  }
};

/// Prepares an operand for a tensor core; null means FP32 arithmetic. A core of
/// BF16 factors reads the nearest BF16 values. An exponent is that of the
/// value, or those of code and scale together, or that of the scale. Subnormals
/// have the smallest normal's exponent, and zero has -126.
PreparedSide PrepareSide(const ScalarOperand& operand,
                         const ScalarPieces& pieces, const TensorCore* core);

}  // namespace isoloss::oracle
