// The way of token rows to their experts and back, forward and backward: what a
// mixture-of-experts layer sees of expert parallelism.
//
// T = tokens of this process, K = slots per token, D = width of a row. R =
// expert rows of this process: the rows that its experts receive, from all
// ranks, with padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::expert_parallel {

/// What one dispatch moved, over all ranks; known from the routing alone.
struct DispatchCounts {
  int64_t assignments = 0;    ///< (token, slot) pairs
  int64_t dispatch_rows = 0;  ///< rows that travelled to an expert's rank
  int64_t rank_rows = 0;      ///< distinct (token, rank) pairs
  int64_t node_rows = 0;      ///< distinct (token, node) pairs
  int64_t max_rows_per_rank = 0;
  int64_t max_rows_per_expert = 0;
  int64_t empty_experts = 0;
  int64_t padding_rows = 0;
};

/// One layer's exchange. A step calls Dispatch, Combine, CombineBackward,
/// ReturnGradients, DispatchBackward, in this order; an evaluation the first
/// two. All processes call each of them at the same point.
///
/// Errors   as transport::Transport; TransportError also if what arrived is not
///          what was announced.
/// Exact    bits depend on the arguments and the options; on the number of
///          ranks only with a hierarchical algorithm.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Brings row t of `source` to expert expert_ids[t, k], for every slot k.
  /// Shapes   source [T, D]; expert_ids, weights [T, K]. All must stay
  ///          unchanged until DispatchBackward.
  virtual void Dispatch(MatrixView<const float> source,
                        MatrixView<const int32_t> expert_ids,
                        MatrixView<const float> weights) = 0;

  /// Rows that arrived, ordered by (expert, dispatch unit, token, slot), [R,
  /// D]. Padding rows are +0.
  virtual MatrixView<const float> expert_in() const = 0;
  /// Expert e of this process (counted from its first) owns rows [begins[e],
  /// begins[e + 1]), [experts of this process + 1].
  virtual std::span<const size_t> expert_begins() const = 0;
  /// Ends of the dispatch units within each expert's rows, counted from its
  /// first row, [experts * units]; empty if there is one unit.
  virtual std::span<const size_t> unit_ends() const = 0;
  /// Rows of each dispatch unit that are no padding, [experts * units]; empty
  /// if the options ask for none.
  virtual std::span<const size_t> unit_rows() const = 0;
  /// The combine weight of each row, [R]; 0 for padding. For
  /// WeightSite::kBeforeFc2, where the experts apply it.
  virtual std::span<const float> row_weights() const = 0;
  /// Where the experts put its gradient then, [R].
  virtual std::span<float> row_weight_gradients() = 0;

  /// out[t] = the combined outputs of t's experts.
  /// Shapes   expert_out [R, D]; out [T, D].
  virtual void Combine(MatrixView<const float> expert_out,
                       MatrixView<float> out) = 0;

  /// In place: expert_out, as given to Combine, becomes its gradient.
  /// Shapes   dout [T, D]; expert_out [R, D].
  virtual void CombineBackward(MatrixView<const float> dout,
                               MatrixView<float> expert_out) = 0;

  /// Brings the gradient of expert_in back to the tokens, with those of the
  /// weights, [T, K].
  /// Shapes   dexpert_in [R, D].
  virtual MatrixView<const float> ReturnGradients(
      MatrixView<const float> dexpert_in) = 0;

  /// dsource[t] = round(what ReturnGradients brought for t, summed up, +
  /// addend[t]).
  /// Shapes   addend, dsource [T, D].
  virtual void DispatchBackward(MatrixView<const float> addend,
                                MatrixView<float> dsource) = 0;

  /// Of the last Dispatch, over all ranks: tokens of each of the model's
  /// experts, [E].
  virtual std::span<const int64_t> tokens_per_expert() const = 0;
  virtual const DispatchCounts& counts() const = 0;
};

/// Puts something between a MoE layer (counted from 0) and its exchange.
using ExchangeDecorator = std::function<std::unique_ptr<Exchange>(
    size_t layer, std::unique_ptr<Exchange> exchange)>;

}  // namespace isoloss::expert_parallel
