// Moves rows to the experts' ranks.
#include <algorithm>
#include <cstring>

#include "isoloss/expert_parallel/ranked_exchange.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::expert_parallel {
namespace {

using transport::Inbox;
using transport::MessageSize;
using transport::OpKind;
using transport::Outbox;

/// Returns a thread's scratch for encoded rows.
std::span<std::byte> EncodedScratch(size_t bytes) {
  static thread_local std::vector<std::byte> scratch;
  if (scratch.size() < bytes) scratch.resize(bytes);
  return std::span(scratch).first(bytes);
}

}  // namespace

void RankedExchange::SendRows(OpKind kind, MatrixView<const float> source,
                              Receive receive) {
  for (size_t hop = 0; hop < book_.hops(); ++hop) {
    const auto produce = [&, hop](int rank, Outbox& outbox) {
      if (hop == 0) {
        if (kind == OpKind::kDispatch) book_.BuildTokens(rank);
        WriteTokens(kind, rank, source, outbox);
      } else {
        if (kind == OpKind::kDispatch) book_.BuildForwarding(rank);
        WriteRows(kind, rank, hop, State(rank).forwarded, outbox);
      }
    };
    const auto expect = [&, hop](int rank, std::span<MessageSize> sizes) {
      for (size_t from = 0; from < sizes.size(); ++from) {
        sizes[from] =
            book_.MessageOf(kind, hop, from, static_cast<size_t>(rank), width_);
      }
    };
    const auto consume = [&, hop](int rank, const Inbox& inbox) {
      if (hop < book_.last_hop()) {
        KeepForForwarding(kind, rank, inbox);
      } else {
        (this->*receive)(rank, inbox);
      }
    };
    setup_.transport.AllToAll(Op(kind, hop), produce, expect, consume);
  }
}

/// Encodes each token once, however many copies of it leave.
void RankedExchange::WriteTokens(OpKind kind, int rank,
                                 MatrixView<const float> source,
                                 Outbox& outbox) {
  const Payload& payload = book_.PayloadOf(kind);
  const size_t row_bytes = payload.row_bytes(width_);
  const size_t first = book_.FirstToken(rank);
  const size_t count = book_.TokenCount(rank);
  const std::span<std::byte> items = EncodedScratch(count * row_bytes);
  for (size_t t = 0; t < count; ++t) {
    payload.encode(source.Row(first + t), width_, &items[t * row_bytes]);
  }
  WriteRows(kind, rank, 0, items, outbox);
}

/// Writes the messages of one hop: assignments, then copies of the encoded
/// rows of `items`.
void RankedExchange::WriteRows(OpKind kind, int rank, size_t hop,
                               std::span<const std::byte> items,
                               Outbox& outbox) {
  const auto self = static_cast<size_t>(rank);
  const SendSide& send = book_.At(rank, hop).send;
  const size_t row_bytes = book_.PayloadOf(kind).row_bytes(width_);
  for (size_t to = 0; to < setup_.topology.ranks; ++to) {
    const size_t rows = send.RowCount(to);
    if (rows == 0) continue;
    const size_t tags_end = send.TagCount(to) * TagBytes(kind);
    const std::span<std::byte> message =
        outbox.Add(static_cast<int>(to), {rows, tags_end + rows * row_bytes});
    const auto row_at = [&](size_t row) {
      return message.subspan(tags_end + row * row_bytes, row_bytes);
    };
    for (size_t row = 0; row < rows; ++row) {
      const size_t item = send.ItemOfRow(send.RowBegin(to) + row);
      std::memcpy(row_at(row).data(), &items[item * row_bytes], row_bytes);
    }
    for (size_t i = 0; i < send.TagCount(to); ++i) {
      const Assignment sent =
          book_.SentAssignment(rank, hop, send.TagBegin(to) + i);
      if (hop == 0) {
        conservation_.Sent(kind, self, self,
                           RowHash(kind, sent, row_at(sent.row)));
      }
      if (kind == OpKind::kDispatch) {
        std::memcpy(&message[i * sizeof(Assignment)], &sent, sizeof(sent));
      }
    }
  }
}

void RankedExchange::KeepForForwarding(OpKind kind, int rank,
                                       const Inbox& inbox) {
  RankState& state = State(rank);
  ReceiveSide& receive = book_.At(rank, 0).receive;
  const size_t row_bytes = book_.PayloadOf(kind).row_bytes(width_);
  const size_t ranks = setup_.topology.ranks;
  if (kind == OpKind::kDispatch) receive.Clear(ranks);
  state.forwarded.clear();
  for (size_t from = 0; from < ranks; ++from) {
    const RouteBook::Extent extent =
        book_.ExtentOf(0, from, static_cast<size_t>(rank));
    const auto message = inbox.From(static_cast<int>(from));
    const size_t tags_end = extent.tags * TagBytes(kind);
    if (kind == OpKind::kDispatch) {
      receive.Take(static_cast<size_t>(rank), from, extent.rows,
                   message.first(tags_end));
      for (size_t i = receive.tag_begins[from]; i < receive.tags.size(); ++i) {
        book_.CheckAssignment(rank, 0, from, receive.tags[i]);
      }
    }
    const auto rows = message.subspan(tags_end);
    state.forwarded.insert(state.forwarded.end(), rows.begin(), rows.end());
  }
  ISOLOSS_ASSERT(state.forwarded.size() == receive.rows() * row_bytes);
}

/// Finds the places of the rank's received assignments in the experts' lists.
void RankedExchange::PlaceAssignments(int rank) {
  RankState& state = State(rank);
  const ReceiveSide& receive = book_.At(rank, book_.last_hop()).receive;
  const std::vector<Assignment>& tags = receive.tags;
  state.places.resize(tags.size());
  state.weights.resize(tags.size());
  state.dweights.resize(tags.size());
  for (size_t from = 0; from < setup_.topology.ranks; ++from) {
    for (size_t i = receive.tag_begins[from]; i < receive.tag_begins[from + 1];
         ++i) {
      const Assignment& tag = tags[i];
      const size_t source =
          book_.CheckAssignment(rank, book_.last_hop(), from, tag);
      const size_t place = book_.layout().Place(tag.expert, tag.token, source);
      state.places[i] = static_cast<int32_t>(place);
      state.weights[i] = tag.weight;
      row_weights_[place] = tag.weight;
    }
  }
  book_.layout().CheckPlaced(static_cast<size_t>(rank));
}

void RankedExchange::ReceiveTokens(int rank, const Inbox& inbox) {
  const auto self = static_cast<size_t>(rank);
  RankState& state = State(rank);
  ReceiveSide& receive = book_.At(rank, book_.last_hop()).receive;
  const size_t ranks = setup_.topology.ranks;
  receive.Clear(ranks);
  for (size_t from = 0; from < ranks; ++from) {
    const RouteBook::Extent extent =
        book_.ExtentOf(book_.last_hop(), from, self);
    receive.Take(self, from, extent.rows,
                 inbox.From(static_cast<int>(from))
                     .first(extent.tags * sizeof(Assignment)));
  }
  PlaceAssignments(rank);

  const Payload& payload = book_.PayloadOf(OpKind::kDispatch);
  const size_t row_bytes = payload.row_bytes(width_);
  for (size_t from = 0; from < ranks; ++from) {
    const size_t tags = receive.TagCount(from);
    if (tags == 0) continue;
    const auto rows =
        inbox.From(static_cast<int>(from)).subspan(tags * sizeof(Assignment));
    for (size_t i = 0; i < tags; ++i) {
      const size_t number = receive.tag_begins[from] + i;
      const Assignment& tag = receive.tags[number];
      const auto row = rows.subspan(
          (tag.row - receive.row_begins[from]) * row_bytes, row_bytes);
      conservation_.Received(OpKind::kDispatch, self,
                             book_.SourceOf(from, tag.token),
                             RowHash(OpKind::kDispatch, tag, row));
      payload.decode(row.data(), width_, setup_.rounding,
                     expert_in_.Row(static_cast<size_t>(state.places[number])));
    }
  }
}

/// Replaces the expert outputs by their gradients, in place, and computes the
/// gradients of the weights, unless the experts do (kBeforeFc2).
void RankedExchange::ReceiveOutputGradients(int rank, const Inbox& inbox) {
  static thread_local Matrix<float> gradients;  // [assignments, D]
  static thread_local Executor serial{1};
  const auto self = static_cast<size_t>(rank);
  RankState& state = State(rank);
  const ReceiveSide& receive = book_.At(rank, book_.last_hop()).receive;
  const Payload& payload = book_.PayloadOf(OpKind::kDispatchGradient);
  const size_t row_bytes = payload.row_bytes(width_);
  const bool before_fc2 = setup_.options.weight_site == WeightSite::kBeforeFc2;
  gradients.ResizeUninitialized(before_fc2 ? 0 : receive.tags.size(), width_);
  for (size_t from = 0; from < setup_.topology.ranks; ++from) {
    const auto rows = inbox.From(static_cast<int>(from));
    for (size_t i = 0; i < receive.TagCount(from); ++i) {
      const size_t number = receive.tag_begins[from] + i;
      const Assignment& tag = receive.tags[number];
      const auto row = rows.subspan(
          (tag.row - receive.row_begins[from]) * row_bytes, row_bytes);
      conservation_.Received(OpKind::kDispatchGradient, self,
                             book_.SourceOf(from, tag.token),
                             RowHash(OpKind::kDispatchGradient, tag, row));
      payload.decode(row.data(), width_, setup_.rounding,
                     before_fc2 ? expert_out_.Row(
                                      static_cast<size_t>(state.places[number]))
                                : gradients.Row(number));
    }
  }
  if (before_fc2) return;
  const size_t tags = receive.tags.size();
  kernels::GatherCombineBackward(expert_out_, {state.places.data(), tags, 1},
                                 {state.weights.data(), tags, 1},
                                 gradients.view(), setup_.rounding, expert_out_,
                                 {state.dweights.data(), tags, 1}, serial);
}

}  // namespace isoloss::expert_parallel
