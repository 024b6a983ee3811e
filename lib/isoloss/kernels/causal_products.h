// The products of causal attention whose operands are not quantised.
//
// A sum is a chain as in kernels/gemm.h: acc = fma(a, b, acc) from +0, for
// ascending k.
//
// Shapes   columns of heads have the rows of a batch; scores are those of the
//          wave.
// Errors   ShapeError if there are fewer scores, or if widths differ; a block
//          has at most kQueryBlock queries except where it says otherwise.
// Exact    bits depend on the arguments only.
#pragma once

#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/score_plan.h"

namespace isoloss::kernels {

/// Returns what a block's queries, or keys, have of the columns of its head.
template <typename T>
MatrixView<T> QueriesOf(const HeadColumns<T>& columns,
                        const ScoreBlock& block) {
  return columns.Of(block.head, block.begin + block.first, block.rows);
}
template <typename T>
MatrixView<T> KeysOf(const HeadColumns<T>& columns, const ScoreBlock& block) {
  return columns.Of(block.head, block.begin, block.keys());
}

/// scores = left right^T for the queries and the keys of a block, over the
/// width of their columns. Scores of keys that a query does not see are
/// unspecified.
struct ScoreProduct {
  HeadColumns<const float> left;   ///< of queries
  HeadColumns<const float> right;  ///< of keys
  /// Holds `right` of each document and head; empty: it is read in place. Only
  /// the host's form reads it.
  std::span<const PackedOperand> packed;
  std::span<float> scores;
};

/// Computes independent products together.
void CausalScores(const ScoreWave& wave, std::span<const ScoreProduct> products,
                  Executor& executor);

/// out = round(scores right) for the queries of a block, over all its keys:
/// those that a query does not see count, too.
struct QueryProduct {
  std::span<const float> scores;
  HeadColumns<const float> right;  ///< of keys
  HeadColumns<float> out;          ///< of queries
};

/// sums += scores^T right for the keys of a block, over its queries. Each
/// kQueryBlock of them are a chain, and chains are added in ascending order.
/// The sum of a key starts at +0 in the chain that has its own query. The
/// document's last block rounds all of them. Blocks may have any number of
/// queries.
struct KeySum {
  std::span<const float> scores;
  HeadColumns<const float> right;  ///< of queries
  HeadColumns<float> sums;         ///< of keys
};

/// Products of a wave, none of which reads what another one writes.
struct CausalProductList {
  std::span<const QueryProduct> of_queries = {};
  std::span<const KeySum> of_keys = {};
  Rounding rounding = Rounding::kFp32;
};

/// Computes independent products together.
void CausalProducts(const ScoreWave& wave, const CausalProductList& products,
                    Executor& executor);

}  // namespace isoloss::kernels
