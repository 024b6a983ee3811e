// Defines how token rows get to their experts and back, forward and backward.
// This is the part of expert parallelism that a mixture-of-experts layer sees.
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

/// Names one of the consecutive equal shares (micro-batches) that a process
/// computes one after the other. Each is whole sequences and dispatch units.
struct BatchShare {
  size_t index = 0;
  size_t count = 1;

  /// Return where the share begins and ends among `total` tokens or units.
  size_t Begin(size_t total) const { return total * index / count; }
  size_t End(size_t total) const { return total * (index + 1) / count; }
};

/// Counts what the dispatches of a batch moved so far, over all ranks: a later
/// share adds to the counts. They depend on the routing alone.
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

/// Is the exchange of one layer. A training step calls Dispatch, Combine,
/// CombineBackward, ReturnGradients and DispatchBackward, in this order; an
/// evaluation calls the first two. All processes call each of them at the same
/// point.
///
/// Errors   as transport::Transport; TransportError also if the rows that
///          arrive are not the announced ones.
/// Exact    bits depend on the arguments and the options. They depend on the
///          number of ranks only with a hierarchical algorithm.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Brings row t of `source` to expert expert_ids[t, k], for every slot k.
  /// Shapes   source [T, D]; expert_ids, weights [T, K]. All must stay
  ///          unchanged until DispatchBackward.
  virtual void Dispatch(MatrixView<const float> source,
                        MatrixView<const int32_t> expert_ids,
                        MatrixView<const float> weights) = 0;

  /// Returns the rows that arrived, ordered by (expert, dispatch unit, token,
  /// slot), [R, D]. Padding rows are +0.
  virtual MatrixView<const float> expert_in() const = 0;
  /// Expert e of this process (counted from its first) owns rows [begins[e],
  /// begins[e + 1]). The shape is [experts of this process + 1].
  virtual std::span<const size_t> expert_begins() const = 0;
  /// Returns the ends of the dispatch units within each expert's rows, counted
  /// from its first row, [experts * units]. It is empty if there is one unit.
  virtual std::span<const size_t> unit_ends() const = 0;
  /// Returns the number of rows of each dispatch unit without padding, [experts
  /// * units]. It is empty if the options ask for no padding.
  virtual std::span<const size_t> unit_rows() const = 0;
  /// Returns the combine weight of each row, [R]; 0 for padding.
  /// WeightSite::kBeforeFc2 needs it, because there the experts apply the
  /// weights.
  virtual std::span<const float> row_weights() const = 0;
  /// With kBeforeFc2 the experts write the gradients of row_weights here, [R].
  virtual std::span<float> row_weight_gradients() = 0;

  /// Sets out[t] = the combined outputs of t's experts.
  /// Shapes   expert_out [R, D]; out [T, D].
  virtual void Combine(MatrixView<const float> expert_out,
                       MatrixView<float> out) = 0;

  /// Turns expert_out, as given to Combine, into its gradient, in place.
  /// Shapes   dout [T, D]; expert_out [R, D].
  virtual void CombineBackward(MatrixView<const float> dout,
                               MatrixView<float> expert_out) = 0;

  /// Brings the gradient of expert_in back to the tokens and returns the
  /// gradients of the weights, [T, K].
  /// Shapes   dexpert_in [R, D].
  virtual MatrixView<const float> ReturnGradients(
      MatrixView<const float> dexpert_in) = 0;

  /// Sets dsource[t] = round(sum of the rows that ReturnGradients brought for t
  /// + addend[t]).
  /// Shapes   addend, dsource [T, D].
  virtual void DispatchBackward(MatrixView<const float> addend,
                                MatrixView<float> dsource) = 0;

  /// Returns how many of the batch's tokens each of the model's experts got so
  /// far, over all ranks, [E].
  virtual std::span<const int64_t> tokens_per_expert() const = 0;
  virtual const DispatchCounts& counts() const = 0;
};

/// Wraps the exchange of a MoE layer (counted from 0) in another object.
using ExchangeDecorator = std::function<std::unique_ptr<Exchange>(
    size_t layer, std::unique_ptr<Exchange> exchange)>;

}  // namespace isoloss::expert_parallel
