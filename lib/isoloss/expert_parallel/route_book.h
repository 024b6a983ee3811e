// Records which ranks send which rows to which ranks, in one MoE layer's
// exchange of one step. RankedExchange moves the rows, IndexedExchange finds
// them where they lie.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/assignment.h"
#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/expert_parallel/hop.h"
#include "isoloss/expert_parallel/layout.h"
#include "isoloss/expert_parallel/options.h"
#include "isoloss/expert_parallel/payload.h"
#include "isoloss/expert_parallel/topology.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/transport/transport.h"

namespace isoloss::expert_parallel {

/// This setup is shared by the exchanges of one model.
struct ExchangeSetup {
  Topology topology;
  ExchangeOptions options;
  size_t dispatch_units = 1;
  kernels::Rounding rounding = kernels::Rounding::kBf16;  ///< of activations
  transport::Transport& transport;
  Executor& executor;
  /// Says which share of the batch a dispatch is of; null: always the whole.
  const BatchShare* share = nullptr;
};

/// Returns how many bytes an operation sends of each assignment beside rows: a
/// dispatch sends it whole, and weights' gradients come back.
constexpr size_t TagBytes(transport::OpKind kind) {
  return kind == transport::OpKind::kDispatch          ? sizeof(Assignment)
         : kind == transport::OpKind::kCombineGradient ? sizeof(float)
                                                       : 0;
}

/// A phase of a local rank calls the methods that take a rank, with its own
/// rank.
class RouteBook {
 public:
  /// Is one hop of one local rank.
  struct Port {
    SendSide send;
    ReceiveSide receive;
  };
  /// Counts the rows and assignments of one message of a dispatch.
  struct Extent {
    size_t rows = 0;
    size_t tags = 0;
  };
  /// Names a returning row for its hash, and the rank that owns its token.
  struct Reply {
    Assignment name;
    size_t source;
  };

  /// `layer` is the number among the MoE layers, for messages.
  RouteBook(const ExchangeSetup& setup, int layer);

  // The number of hops is fixed by the algorithm.
  size_t hops() const { return options_.algorithm == Algorithm::kNode ? 2 : 1; }
  size_t last_hop() const { return hops() - 1; }
  /// Returns the order in which the rows of a hop come back and are added.
  FoldOrder fold_order() const;

  /// Begins a step or a share of it: gathers the counts of all ranks. Keeps
  /// both views. Without weights, assignments have the weight 0.
  /// Errors   TransportError if counts do not add up.
  void Count(MatrixView<const int32_t> expert_ids,
             MatrixView<const float> weights);

  const Layout& layout() const { return layout_; }
  Layout& layout() { return layout_; }
  const DispatchCounts& counts() const { return counts_; }
  /// Returns the number of this process's first token in the global batch.
  size_t first_token() const { return first_token_; }
  size_t slots() const { return expert_ids_.cols(); }
  MatrixView<const float> weights() const { return weights_; }

  /// Returns the number of the rank's first token among the tokens of this
  /// process.
  size_t FirstToken(int rank) const;
  size_t TokenCount(int rank) const;
  /// Returns the rank that owns `token`, which came from or goes back to
  /// `peer`. With one hop that is the peer itself.
  size_t SourceOf(size_t peer, uint32_t token) const {
    return hops() == 1 ? peer : layout_.SourceOf(token);
  }
  /// Returns number `i` of the rank's own assignments, in the order (token,
  /// slot).
  Assignment TokenAssignment(int rank, size_t i) const;

  /// Returns what carries the rows of an operation. Rows that come back are
  /// never quantised.
  const Payload& PayloadOf(transport::OpKind kind) const;
  /// Returns the extent of the message from `from` to `to` in a dispatch's hop.
  Extent ExtentOf(size_t hop, size_t from, size_t to) const;
  /// Returns the size of the message from `from` to `to` in a hop of an
  /// operation that moves rows of `width` values. Rows come back along the hops
  /// of a dispatch.
  transport::MessageSize MessageOf(transport::OpKind kind, size_t hop,
                                   size_t from, size_t to, size_t width) const;
  Port& At(int rank, size_t hop) {
    return ports_[static_cast<size_t>(rank - local_.first)][hop];
  }
  const Port& At(int rank, size_t hop) const {
    return ports_[static_cast<size_t>(rank - local_.first)][hop];
  }
  /// Builds what the rank sends of its own tokens in hop 0.
  void BuildTokens(int rank);
  /// Builds what a gateway forwards to the ranks of its node in hop 1.
  void BuildForwarding(int rank);
  /// Returns the assignment that `rank` sends in `hop` as number `tag`.
  Assignment SentAssignment(int rank, size_t hop, size_t tag) const;
  /// Returns the rank that owns the token of `tag`, which came from `peer`.
  /// Throws TransportError if `peer` does not own it in hop 0, if there is no
  /// such token or expert, or if `rank` is not on the way to the expert.
  size_t CheckAssignment(int rank, size_t hop, size_t peer,
                         const Assignment& tag) const;

  /// Returns the name of a reply: with one row per assignment it has the slot,
  /// else the token alone.
  Assignment ReplyName(uint32_t token, uint16_t slot) const;
  /// Returns the reply to row number `row` of the rows that `rank` sent in
  /// `hop`.
  Reply ReplyTo(int rank, size_t hop, size_t row) const;

 private:
  const Topology topology_;
  const ExchangeOptions options_;
  transport::Transport& transport_;
  const BatchShare* share_;
  const int layer_;
  const transport::RankRange local_;
  const Payload& payload_;           // of token rows
  const Payload& gradient_payload_;  // of output gradients
  const Payload& reply_payload_;     // of all that comes back
  Layout layout_;
  DispatchCounts counts_;
  std::vector<std::array<Port, 2>> ports_;  // [local ranks, hops]

  // These belong to the running step.
  size_t first_token_ = 0;  // of this process, in the global batch
  MatrixView<const int32_t> expert_ids_;
  MatrixView<const float> weights_;
};

}  // namespace isoloss::expert_parallel
