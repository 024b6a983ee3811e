// Returns rows from the experts' ranks and adds them up on the way.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "isoloss/expert_parallel/ranked_exchange.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::expert_parallel {
namespace {

using kernels::Rounding;
using transport::Inbox;
using transport::MessageSize;
using transport::OpKind;
using transport::Outbox;

/// The rows belong to one thread of a phase, so the kernels get an executor of
/// one.
Executor& Serial() {
  static thread_local Executor serial(1);
  return serial;
}

/// Sets out = rows[order[0]] + rows[order[1]] + … from +0, rounded once.
void AddRows(MatrixView<const float> rows, std::span<const int32_t> order,
             Rounding rounding, MatrixView<float> out) {
  kernels::GatherCombine(rows, {order.data(), 1, order.size()}, {}, {},
                         rounding, out, Serial());
}

/// Computes the same sum, rounded after every addition.
void AddRowsRoundingEach(MatrixView<const float> rows,
                         std::span<const int32_t> order, Rounding rounding,
                         MatrixView<float> out) {
  std::fill(out.Row(0), out.Row(0) + out.cols(), 0.0f);
  for (const int32_t row : order) {
    kernels::Add(out, rows.Rows(static_cast<size_t>(row), 1), rounding, out,
                 Serial());
  }
}

}  // namespace

void RankedExchange::ReturnRows(OpKind kind,
                                MatrixView<const float> expert_rows,
                                MatrixView<float> out) {
  for (size_t hop = book_.hops(); hop-- > 0;) {
    const auto produce = [&, hop](int rank, Outbox& outbox) {
      RankState& state = State(rank);
      if (hop < book_.last_hop()) {
        WriteReply(kind, rank, hop, state.folded.view(), {},
                   state.gateway_dweights, outbox);
        return;
      }
      if (kind == OpKind::kCombineGradient) TakeWeightGradients(rank);
      const bool weighted =
          kind == OpKind::kCombine &&
          setup_.options.weight_site == WeightSite::kExpertOut;
      if (weighted || SharesRows(book_.fold_order())) {
        WriteReply(kind, rank, hop, RowSums(weighted, rank, expert_rows), {},
                   state.dweights, outbox);
      } else {
        WriteReply(kind, rank, hop, expert_rows, state.places, state.dweights,
                   outbox);
      }
    };
    const auto expect = [&, hop](int rank, std::span<MessageSize> sizes) {
      for (size_t from = 0; from < sizes.size(); ++from) {
        sizes[from] =
            book_.MessageOf(kind, hop, from, static_cast<size_t>(rank), width_);
      }
    };
    const auto consume = [&, hop](int rank, const Inbox& inbox) {
      RankState& state = State(rank);
      if (hop > 0) {
        state.gateway_dweights.resize(book_.At(rank, 0).receive.tags.size());
        FoldAtGateway(
            rank, ReadReply(kind, rank, hop, inbox, state.gateway_dweights));
        return;
      }
      std::span<float> dweights;
      if (kind == OpKind::kCombineGradient) {
        dweights = {dweights_.Row(book_.FirstToken(rank)),
                    book_.TokenCount(rank) * book_.slots()};
      }
      FoldAtTokens(kind, rank, ReadReply(kind, rank, hop, inbox, dweights),
                   out);
    };
    setup_.transport.AllToAll(Op(kind, hop), produce, expect, consume);
  }
}

/// With WeightSite::kBeforeFc2 the experts have computed these gradients.
void RankedExchange::TakeWeightGradients(int rank) {
  if (setup_.options.weight_site != WeightSite::kBeforeFc2) return;
  RankState& state = State(rank);
  for (size_t i = 0; i < state.places.size(); ++i) {
    state.dweights[i] =
        row_weight_gradients_[static_cast<size_t>(state.places[i])];
  }
}

/// Returns the row that goes back for each received row of the last hop, [rows,
/// D]. Terms are multiplied by their weights if `weighted`, and added up if
/// assignments share the row.
MatrixView<const float> RankedExchange::RowSums(
    bool weighted, int rank, MatrixView<const float> expert_rows) {
  static thread_local Matrix<float> terms;           // [assignments, D]
  static thread_local std::vector<int32_t> numbers;  // 0, 1, 2, …
  static thread_local Matrix<float> sums;            // [received rows, D]
  const RankState& state = State(rank);
  const ReceiveSide& receive = book_.At(rank, book_.last_hop()).receive;
  const size_t tags = receive.tags.size();
  // Row order[i] of `rows` is the term of assignment i.
  MatrixView<const float> rows = expert_rows;
  std::span<const int32_t> order = state.places;
  if (weighted) {
    terms.ResizeUninitialized(tags, width_);
    kernels::GatherCombine(expert_rows, {state.places.data(), tags, 1},
                           {state.weights.data(), tags, 1}, {}, setup_.rounding,
                           terms.view(), Serial());
    if (!SharesRows(book_.fold_order())) return terms.view();
    numbers.resize(tags);
    std::iota(numbers.begin(), numbers.end(), 0);
    rows = terms.view();
    order = numbers;
  }
  sums.ResizeUninitialized(receive.rows(), width_);
  for (size_t row = 0; row < receive.rows(); ++row) {
    const size_t begin = receive.tag_of_row[row];
    const size_t end = receive.tag_of_row[row + 1];
    AddRows(rows, order.subspan(begin, end - begin), setup_.rounding,
            sums.view().Rows(row, 1));
  }
  return sums.view();
}

/// Sends rows back to the ranks that sent the rows of `hop`, in their order.
/// Row i is row i of `rows`, or row places[i].
void RankedExchange::WriteReply(OpKind kind, int rank, size_t hop,
                                MatrixView<const float> rows,
                                std::span<const int32_t> places,
                                std::span<const float> dweights,
                                Outbox& outbox) {
  const auto self = static_cast<size_t>(rank);
  const ReceiveSide& receive = book_.At(rank, hop).receive;
  const Payload& payload = book_.PayloadOf(kind);
  const size_t row_bytes = payload.row_bytes(width_);
  for (size_t to = 0; to < setup_.topology.ranks; ++to) {
    const size_t count = receive.RowCount(to);
    if (count == 0) continue;
    const size_t weights_end = receive.TagCount(to) * TagBytes(kind);
    const std::span<std::byte> message = outbox.Add(
        static_cast<int>(to), {count, weights_end + count * row_bytes});
    if (weights_end > 0) {
      std::memcpy(message.data(), &dweights[receive.tag_begins[to]],
                  weights_end);
    }
    // Gateways only pass weights on.
    for (size_t i = 0;
         hop == book_.last_hop() && i < weights_end / sizeof(float); ++i) {
      Assignment tag = receive.tags[receive.tag_begins[to] + i];
      tag.weight = dweights[receive.tag_begins[to] + i];
      conservation_.Sent(kind, self, book_.SourceOf(to, tag.token),
                         RowHash(kind, tag, {}));
    }
    for (size_t i = 0; i < count; ++i) {
      const size_t row = receive.row_begins[to] + i;
      const auto bytes =
          message.subspan(weights_end + i * row_bytes, row_bytes);
      const size_t from =
          places.empty() ? row : static_cast<size_t>(places[row]);
      payload.encode(rows.Row(from), width_, bytes.data());
      const Assignment& tag = receive.tags[receive.tag_of_row[row]];
      conservation_.Sent(
          kind, self, book_.SourceOf(to, tag.token),
          RowHash(kind, book_.ReplyName(tag.token, tag.slot), bytes));
    }
  }
}

/// Returns the rows that came back for those that the rank sent in `hop`, in
/// the order in which it sent them. `dweights` has one element per assignment
/// of its items.
MatrixView<const float> RankedExchange::ReadReply(OpKind kind, int rank,
                                                  size_t hop,
                                                  const Inbox& inbox,
                                                  std::span<float> dweights) {
  static thread_local Matrix<float> rows;  // [rows sent, D]
  const SendSide& send = book_.At(rank, hop).send;
  const Payload& payload = book_.PayloadOf(kind);
  const size_t row_bytes = payload.row_bytes(width_);
  rows.ResizeUninitialized(send.rows(), width_);
  for (size_t from = 0; from < setup_.topology.ranks; ++from) {
    if (send.RowCount(from) == 0) continue;
    const auto message = inbox.From(static_cast<int>(from));
    const size_t weights_end = send.TagCount(from) * TagBytes(kind);
    for (size_t i = 0; i < weights_end / sizeof(float); ++i) {
      const size_t assignment = send.AssignmentOfTag(send.TagBegin(from) + i);
      std::memcpy(&dweights[assignment], &message[i * sizeof(float)],
                  sizeof(float));
      if (hop > 0) continue;
      Assignment tag = book_.TokenAssignment(rank, assignment);
      tag.weight = dweights[assignment];
      conservation_.Received(kind, static_cast<size_t>(rank),
                             static_cast<size_t>(rank), RowHash(kind, tag, {}));
    }
    for (size_t i = 0; i < send.RowCount(from); ++i) {
      const size_t row = send.RowBegin(from) + i;
      const auto bytes =
          message.subspan(weights_end + i * row_bytes, row_bytes);
      const auto [name, source] = book_.ReplyTo(rank, hop, row);
      conservation_.Received(kind, static_cast<size_t>(rank), source,
                             RowHash(kind, name, bytes));
      payload.decode(bytes.data(), width_, setup_.rounding, rows.Row(row));
    }
  }
  return rows.view();
}

/// A gateway adds up the rows that the ranks of its node returned for each row.
void RankedExchange::FoldAtGateway(int rank, MatrixView<const float> rows) {
  RankState& state = State(rank);
  const SendSide& send = book_.At(rank, 1).send;
  state.folded.ResizeUninitialized(send.items(), width_);
  for (size_t item = 0; item < send.items(); ++item) {
    AddRows(rows, send.Fold(item), setup_.rounding,
            state.folded.view().Rows(item, 1));
  }
}

/// A token's rank adds up the rows that came back for each of its tokens.
/// Gradients are not rounded yet, because DispatchBackward adds an addend.
void RankedExchange::FoldAtTokens(OpKind kind, int rank,
                                  MatrixView<const float> rows,
                                  MatrixView<float> out) {
  const SendSide& send = book_.At(rank, 0).send;
  const size_t first = book_.FirstToken(rank);
  const size_t count = book_.TokenCount(rank);
  const bool forward = kind == OpKind::kCombine;
  const Rounding rounding = forward ? setup_.rounding : Rounding::kFp32;
  if (book_.fold_order() == FoldOrder::kSlot) {
    const bool weighted =
        forward && setup_.options.weight_site == WeightSite::kSource;
    kernels::GatherCombine(rows, {send.folds().data(), count, book_.slots()},
                           weighted ? book_.weights().Rows(first, count)
                                    : MatrixView<const float>(),
                           {}, rounding, out.Rows(first, count), Serial());
    return;
  }
  for (size_t t = 0; t < count; ++t) {
    const MatrixView<float> sum = out.Rows(first + t, 1);
    if (book_.fold_order() == FoldOrder::kExpert) {
      AddRowsRoundingEach(rows, send.Fold(t), setup_.rounding, sum);
    } else {
      AddRows(rows, send.Fold(t), rounding, sum);
    }
  }
}

}  // namespace isoloss::expert_parallel
