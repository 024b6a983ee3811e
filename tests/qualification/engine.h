// A GEMM engine that quantises operands itself, in plain scalar code that can
// be changed at every point. Unchanged it has the bits of kernels::GemmBatch.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/ensembles/segment_sums.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/model/gemm_engine.h"

namespace isoloss::qualification {

using ensembles::FoldProducts;

enum class Side { kLeft, kRight };

/// One operand of one product.
struct Place {
  const model::GemmTask& task;
  Side side;
  std::span<const model::GemmTask> batch;  ///< computed together

  const kernels::Operand& operand() const {
    return side == Side::kLeft ? task.problem.a : task.problem.b;
  }
  const formats::Quantization& spec() const { return *operand().quantization; }
  bool Is(precision::GemmRole role, Side which) const {
    return task.role == role && side == which;
  }
  /// Is it W, in either orientation?
  bool IsWeight() const {
    return side == Side::kRight && task.role != precision::GemmRole::kWgrad;
  }
  /// Is it dy, in either orientation?
  bool IsGradient() const {
    return side == Side::kLeft && task.role != precision::GemmRole::kFprop;
  }
};

/// Elements [begin, end) of the contraction axis that share a scale.
struct Block {
  size_t begin;
  size_t end;
};
/// Up to kMxBlockSize elements each, anew at every segment.
std::vector<Block> BlocksOf(std::span<const size_t> segment_ends);

/// A product whose operands are finished: sums = a b^T.
/// Shapes   a [m, k], b [n, k], sums [m, n].
struct Product {
  const model::GemmTask& task;
  MatrixView<const float> a;
  MatrixView<const float> b;
  std::span<const size_t> segment_ends;
  MatrixView<float> sums;
};

/// What is done otherwise; an empty function stands for what is right. Called
/// from several threads at once, for different products. Rows are operand rows:
/// [extent, depth], whatever the operand's own orientation.
struct EngineEdits {
  /// Products that go this way; empty: all. The others are none of its
  /// business.
  std::function<bool(const model::GemmTask&)> touches = {};

  // Of operands that are to be quantised, in this order.
  std::function<void(const Place&, Matrix<float>& rows)> before_quantising = {};
  std::function<uint8_t(const Place&, std::span<const float> block)> scale = {};
  std::function<void(const Place&, std::span<const Block> blocks,
                     const Matrix<float>& rows, Matrix<uint8_t>& scales)>
      scales = {};  ///< [extent, blocks]
  /// One block under its scale, dequantised.
  std::function<void(const Place&, uint8_t scale, std::span<const float> in,
                     std::span<float> out)>
      elements = {};
  std::function<void(const Place&, Matrix<float>& rows)> after_quantising = {};

  /// Sums before they are rounded as the product asks for.
  std::function<void(const Product&)> product = {};
  /// Once c is written.
  std::function<void(const model::GemmTask&)> result = {};
};

model::GemmEngine MakeEngine(EngineEdits edits);

// Parts for edits.

/// Has it a quantised operand?
bool IsQuantized(const model::GemmTask& task);
/// Does `part` occur in the task's site?
bool AtSite(const model::GemmTask& task, std::string_view part);
/// Operand rows, rounded, before quantisation.
Matrix<float> RowsOf(const kernels::Operand& operand);
/// What quantise-dequantise means, block by block.
void QuantizeRows(const formats::Quantization& spec,
                  std::span<const Block> blocks, Matrix<float>& rows);
/// A cast of elements, tabulated: operands are BF16, and scaled by a power of
/// two they nearly always still are.
class CastTable {
 public:
  explicit CastTable(std::function<float(float)> cast);
  float operator()(float value) const {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return (bits & 0xFFFF) == 0 ? values_[bits >> 16] : cast_(value);
  }

 private:
  std::function<float(float)> cast_;
  std::vector<float> values_;  // of every BF16
};

/// One block under a scale that somebody else chose: elements saturate.
void QuantizeUnderScale(const formats::Format& element, uint8_t scale,
                        std::span<const float> in, std::span<float> out);

/// ensembles::SumSegments of a product.
inline void SumSegments(const Product& product,
                        const ensembles::SegmentSum& segment) {
  ensembles::SumSegments(product.a, product.b, product.segment_ends, segment,
                         product.sums);
}

}  // namespace isoloss::qualification
