// Is the exchange between virtual ranks, over a transport. It has every
// algorithm of options.h.
//
// A row travels from the token's rank to the expert's rank: in one hop (flat,
// rank, titan_bf16), or in two (node), through the gateway of the expert's
// node. Outputs and gradients take the same way back and are added where the
// rows were parted:
//
//   Dispatch         source rows   --hop 0--> [gateway --hop 1-->] expert lists
//   Combine          outputs       <--hop 0-- [gateway <--hop 1--] expert lists
//   CombineBackward  their gradients, as Dispatch, without assignments
//   ReturnGradients  row and weight gradients, as Combine
#pragma once

#include <memory>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/expert_parallel/conservation.h"
#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/expert_parallel/route_book.h"
#include "isoloss/transport/transport.h"

namespace isoloss::expert_parallel {

class RankedExchange : public Exchange {
 public:
  /// `layer` is the number among the MoE layers, for messages. Keeps
  /// references.
  RankedExchange(const ExchangeSetup& setup, int layer,
                 Conservation& conservation);

  void Dispatch(MatrixView<const float> source,
                MatrixView<const int32_t> expert_ids,
                MatrixView<const float> weights) override;
  MatrixView<const float> expert_in() const override {
    return expert_in_.view();
  }
  std::span<const size_t> expert_begins() const override {
    return book_.layout().expert_begins();
  }
  std::span<const size_t> unit_ends() const override {
    return book_.layout().unit_ends();
  }
  std::span<const size_t> unit_rows() const override {
    return book_.layout().unit_rows();
  }
  std::span<const float> row_weights() const override { return row_weights_; }
  std::span<float> row_weight_gradients() override {
    return row_weight_gradients_;
  }
  void Combine(MatrixView<const float> expert_out,
               MatrixView<float> out) override;
  void CombineBackward(MatrixView<const float> dout,
                       MatrixView<float> expert_out) override;
  MatrixView<const float> ReturnGradients(
      MatrixView<const float> dexpert_in) override;
  void DispatchBackward(MatrixView<const float> addend,
                        MatrixView<float> dsource) override;
  std::span<const int64_t> tokens_per_expert() const override {
    return book_.layout().tokens_per_expert();
  }
  const DispatchCounts& counts() const override { return book_.counts(); }

  /// Returns the routes of the last Dispatch.
  const RouteBook& book() const { return book_; }

 private:
  /// Holds what one local rank keeps between the operations of a step.
  struct RankState {
    /// These bytes are forwarded by a gateway, [received rows, row bytes].
    std::vector<std::byte> forwarded;
    Matrix<float> folded;                 // [gateway rows, D]
    std::vector<float> dweights;          // [tags of the last hop]
    std::vector<float> gateway_dweights;  // [tags of hop 0]
    // These belong to the last hop's received assignments, in order.
    std::vector<int32_t> places;  // rows of the experts' lists
    std::vector<float> weights;
  };
  RankState& State(int rank) {
    return states_[static_cast<size_t>(rank - local_.first)];
  }
  transport::Operation Op(transport::OpKind kind, size_t hop) const {
    return {kind, layer_, static_cast<int>(hop)};
  }
  void ClearLists(size_t width);

  // ranked_dispatch.cc has the way to the experts.
  using Receive = void (RankedExchange::*)(int rank,
                                           const transport::Inbox& inbox);
  /// Sends the rows of `source` (in a dispatch also the assignments) to the
  /// experts' ranks, where `receive` takes the messages of the last hop.
  void SendRows(transport::OpKind kind, MatrixView<const float> source,
                Receive receive);
  void WriteRows(transport::OpKind kind, int rank, size_t hop,
                 std::span<const std::byte> items, transport::Outbox& outbox);
  void WriteTokens(transport::OpKind kind, int rank,
                   MatrixView<const float> source, transport::Outbox& outbox);
  void KeepForForwarding(transport::OpKind kind, int rank,
                         const transport::Inbox& inbox);
  void ReceiveTokens(int rank, const transport::Inbox& inbox);
  void PlaceAssignments(int rank);
  void ReceiveOutputGradients(int rank, const transport::Inbox& inbox);

  // ranked_return.cc has the way back.
  /// Sends the sum for each row of the last hop back to the tokens' ranks,
  /// which write their folds to `out`.
  void ReturnRows(transport::OpKind kind, MatrixView<const float> expert_rows,
                  MatrixView<float> out);
  void TakeWeightGradients(int rank);
  MatrixView<const float> RowSums(bool weighted, int rank,
                                  MatrixView<const float> expert_rows);
  void WriteReply(transport::OpKind kind, int rank, size_t hop,
                  MatrixView<const float> rows, std::span<const int32_t> places,
                  std::span<const float> dweights, transport::Outbox& outbox);
  MatrixView<const float> ReadReply(transport::OpKind kind, int rank,
                                    size_t hop, const transport::Inbox& inbox,
                                    std::span<float> dweights);
  void FoldAtGateway(int rank, MatrixView<const float> rows);
  void FoldAtTokens(transport::OpKind kind, int rank,
                    MatrixView<const float> rows, MatrixView<float> out);

  ExchangeSetup setup_;
  int layer_;
  Conservation& conservation_;
  transport::RankRange local_;
  RouteBook book_;
  std::vector<RankState> states_;  // [local ranks]

  // These belong to the running step.
  size_t width_ = 0;  // D
  size_t local_tokens_ = 0;
  MatrixView<float> expert_out_;  // CombineBackward's, while rows arrive
  Matrix<float> expert_in_;       // [R, D]
  std::vector<float> row_weights_;
  std::vector<float> row_weight_gradients_;
  Matrix<float> returned_;  // [T, D] sums of dexpert_in rows
  Matrix<float> dweights_;  // [T, K]
};

}  // namespace isoloss::expert_parallel
