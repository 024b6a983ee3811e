// Is the exchange between virtual ranks whose rows lie in one memory, such as
// a device's. Nothing travels: rows are gathered and added up by indices. The
// exchange between ranks over a transport (ranked_exchange.h) is its
// definition, for every option, to the bit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/expert_parallel/route_book.h"
#include "isoloss/kernels/travel.h"
#include "isoloss/transport/transport.h"

namespace isoloss::expert_parallel {

/// All matrices, those of the interface too, lie in the executor's memory;
/// only the ids of a Dispatch are copied to the host. Routes, and with them
/// places, counts and sizes of messages, come from the RouteBook. The gather of
/// counts is the only operation of the transport. A batch may come in shares.
class IndexedExchange : public Exchange {
 public:
  /// `layer` is the number among the MoE layers, for messages. `counters`
  /// counts the messages that a transport would have moved. Keeps references.
  IndexedExchange(const ExchangeSetup& setup, int layer,
                  transport::Counters& counters);

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
  std::span<const float> row_weights() const override {
    return {row_weights_.data(), row_weights_.size()};
  }
  std::span<float> row_weight_gradients() override {
    return {row_weight_gradients_.data(), row_weight_gradients_.size()};
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

 private:
  /// The rows that come back to all ranks are added up in levels: on the
  /// expert's rank, at the gateway, at the token's rank. A term of the first
  /// level is a row of the experts' lists, and of the others a sum of the level
  /// before.
  struct Level {
    std::vector<uint32_t> begins = {0};  // [sums + 1]
    std::vector<int32_t> terms;

    size_t sums() const { return begins.size() - 1; }
    /// Appends sums whose terms are term_of(0), term_of(1), …
    template <typename TermOf>
    void Append(std::span<const uint32_t> their_begins, const TermOf& term_of) {
      const auto first = static_cast<uint32_t>(terms.size());
      for (size_t i = 1; i < their_begins.size(); ++i) {
        begins.push_back(first + their_begins[i]);
      }
      for (size_t i = 0; i < their_begins.back(); ++i) {
        terms.push_back(term_of(i));
      }
    }
  };

  Memory& memory() const { return setup_.executor.memory(); }
  void Route();
  void RouteTokens(int rank);
  void TakeOwn(int rank, size_t hop);
  void Place(int rank);
  void AddLevels(int rank);
  void CountMessages(transport::OpKind kind);
  void ClearPadding(MatrixView<float> rows) const;
  MatrixView<const float> Arrived(transport::OpKind kind,
                                  MatrixView<const float> rows,
                                  Matrix<float>& room) const;
  void AddUp(transport::OpKind kind, MatrixView<const float> expert_rows,
             MatrixView<float> out);

  ExchangeSetup setup_;
  transport::Counters& counters_;
  RouteBook book_;

  // These belong to the running share of the step. T is its tokens.
  std::optional<HostRows<int32_t>> expert_ids_;
  MatrixView<const float> weights_;
  size_t width_ = 0;                   // D
  Matrix<int32_t> row_of_slot_;        // [T, K]
  std::vector<int32_t> slot_of_row_;   // [R] t * K + k; 0 for padding
  std::vector<int32_t> token_of_row_;  // [R]; 0 for padding
  std::vector<Level> levels_;
  /// Messages of the batch that have rows, [hops, from, to].
  std::map<transport::OpKind, std::vector<bool>> begun_;

  Matrix<float> expert_in_{memory()};             // [R, D]
  Matrix<float> row_weights_{memory()};           // [R, 1]
  Matrix<float> row_weight_gradients_{memory()};  // [R, 1]
  Matrix<float> returned_{memory()};  // [T, D] sums of dexpert_in rows
  Matrix<float> dweights_{memory()};  // [T, K]
};

}  // namespace isoloss::expert_parallel
