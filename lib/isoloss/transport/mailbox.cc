#include "isoloss/transport/mailbox.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace isoloss::transport {

MessageHeader OperationHeader(const Operation& operation, uint64_t run_id,
                              int64_t step, uint64_t sequence) {
  MessageHeader header;
  header.kind = operation.kind;
  header.run_id = run_id;
  header.step = step;
  header.sequence = sequence;
  header.layer = static_cast<int16_t>(operation.layer);
  header.hop = static_cast<int16_t>(operation.hop);
  return header;
}

MessageHeader DueHeader(const MessageHeader& operation, int source,
                        int destination, const MessageSize& size) {
  MessageHeader header = operation;
  header.source = static_cast<uint16_t>(source);
  header.destination = static_cast<uint16_t>(destination);
  header.rows = size.rows;
  header.payload_bytes = size.bytes;
  return header;
}

RankOutbox::RankOutbox(int rank, const TransportOptions& options)
    : rank_(rank),
      options_(options),
      message_to_(static_cast<size_t>(options.ranks)) {
  destinations_.reserve(message_to_.size());
}

void RankOutbox::Start(const MessageHeader& operation) {
  operation_ = operation;
  for (const int destination : destinations_) {
    message_to_[static_cast<size_t>(destination)] = {};
  }
  destinations_.clear();
  if (chunks_.size() > 1) {
    size_t total = 0;
    for (const auto& chunk : chunks_) total += chunk.size();
    chunks_.clear();
    chunks_.emplace_back().ResizeUninitialized(1, total);
  }
  used_ = 0;
}

std::byte* RankOutbox::Allocate(size_t bytes) {
  constexpr size_t kSmallestChunk = 4096;
  const size_t last = chunks_.empty() ? 0 : chunks_.back().size();
  if (used_ + bytes > last) {
    chunks_.emplace_back().ResizeUninitialized(
        1, std::max({kSmallestChunk, bytes, 2 * last}));
    used_ = 0;
  }
  std::byte* place = chunks_.back().data() + used_;
  used_ += bytes;
  return place;
}

std::span<std::byte> RankOutbox::Add(int destination, const MessageSize& size) {
  const int previous = destinations_.empty() ? -1 : destinations_.back();
  if (size.rows == 0 || destination <= previous ||
      destination >= static_cast<int>(message_to_.size())) {
    ThrowError(ErrorKind::kTransport,
               "Outbox::Add: {} rows for rank {} follow a message for rank {}, "
               "but a message has rows and goes to a rank above the one before "
               "it and below {}. Add messages in the order of ranks, none that "
               "are empty.",
               size.rows, destination, previous, message_to_.size());
  }
  std::byte* place = Allocate(PaddedBytes(size.bytes));
  new (place) MessageHeader(DueHeader(operation_, rank_, destination, size));
  message_to_[static_cast<size_t>(destination)] = {place,
                                                   kHeaderBytes + size.bytes};
  destinations_.push_back(destination);
  return {place + kHeaderBytes, size.bytes};
}

void RankOutbox::Seal() {
  for (const int destination : destinations_) {
    const auto message = message_to_[static_cast<size_t>(destination)];
    auto& header =
        *std::launder(reinterpret_cast<MessageHeader*>(message.data()));
    transport::Seal(header, message.subspan(kHeaderBytes));
    if (options_.damage) options_.damage(rank_, destination, message);
  }
}

RankInbox::RankInbox(int rank, int ranks)
    : rank_(rank),
      expected_(static_cast<size_t>(ranks)),
      payload_(expected_.size()),
      bytes_from_(expected_.size()) {}

void RankInbox::Start(const MessageHeader& operation, const Expect& expect) {
  operation_ = operation;
  delivered_ = 0;
  std::fill(expected_.begin(), expected_.end(), MessageSize{});
  std::fill(payload_.begin(), payload_.end(), std::span<const std::byte>());
  expect(rank_, expected_);
}

void RankInbox::Refuse(int source, const std::string& problem) const {
  ThrowError(ErrorKind::kTransport, "{}: message from rank {} to rank {}: {}",
             Where(operation_), source, rank_, problem);
}

void RankInbox::Deliver(int source, std::span<const std::byte> message) {
  const MessageSize& size = expected(source);
  if (message.empty()) {
    if (size.rows == 0) return;
    Refuse(source, fmt::format("nothing was sent, but {} rows in {} bytes are "
                               "expected",
                               size.rows, size.bytes));
  }
  const MessageHeader due = DueHeader(operation_, source, rank_, size);
  const std::string problem = Problem(message, due);
  if (!problem.empty()) Refuse(source, problem);
  payload_[static_cast<size_t>(source)] = message.subspan(kHeaderBytes);
  ++delivered_;
  if (!MovesRows(due.kind)) return;
  bytes_from_[static_cast<size_t>(source)] += static_cast<int64_t>(size.bytes);
  ++messages_;
}

std::span<const std::byte> RankInbox::From(int source) const {
  return payload_[static_cast<size_t>(source)];
}

void RankInbox::MoveCountersTo(Counters& counters) {
  for (size_t source = 0; source < bytes_from_.size(); ++source) {
    counters.bytes(source, static_cast<size_t>(rank_)) += bytes_from_[source];
    bytes_from_[source] = 0;
  }
  counters.messages += std::exchange(messages_, 0);
}

}  // namespace isoloss::transport
