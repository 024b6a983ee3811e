// softmax(scale * Q K^T + causal mask) V for each document and head.
#pragma once

#include <cstddef>
#include <span>

#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::model {

/// Queries are taken in blocks of so many rows, against all keys up to the
/// block's end: about half of the score matrix is never computed, and memory
/// stays linear in the tokens. Part of the definition, because gradients of
/// keys and values are sums over blocks.
inline constexpr size_t kQueryBlock = 64;

/// One document under one head.
struct AttentionTask {
  size_t head;
  size_t begin;  ///< first token
  size_t length;
};

/// The columns of a [T, heads * stride] matrix that belong to each head: head h
/// occupies columns [h * stride + offset, h * stride + offset + width).
template <typename T>
struct HeadColumns {
  MatrixView<T> matrix;
  size_t stride;
  size_t offset;
  size_t width;

  MatrixView<T> Of(size_t head, size_t first_row, size_t rows) const {
    return matrix.Rows(first_row, rows).Cols(head * stride + offset, width);
  }
  MatrixView<T> Of(const AttentionTask& task) const {
    return Of(task.head, task.begin, task.length);
  }
};

struct AttentionInputs {
  HeadColumns<const float> queries;
  HeadColumns<const float> keys;
  HeadColumns<const float> values;
  /// Token t sees the tokens of its own document up to itself.
  std::span<const size_t> document_ends;
  size_t heads;
  float scale;
};

/// Of as many tasks as there are documents times heads.
AttentionTask TaskAt(const AttentionInputs& in, size_t index);

/// Scores, probabilities and their product with the values are FP32; the
/// output is rounded once.
void AttentionForward(const AttentionInputs& in, kernels::Rounding rounding,
                      const HeadColumns<float>& out, ThreadTeam& team);

/// Recomputes the probabilities (the same bits as in AttentionForward). dkeys
/// and dvalues are sums over query blocks: each block's product is an FP32
/// chain over its queries, blocks are added in ascending order in FP32, and the
/// sum is rounded once.
void AttentionBackward(const AttentionInputs& in,
                       const HeadColumns<const float>& dout,
                       kernels::Rounding rounding,
                       const HeadColumns<float>& dqueries,
                       const HeadColumns<float>& dkeys,
                       const HeadColumns<float>& dvalues, ThreadTeam& team);

}  // namespace isoloss::model
