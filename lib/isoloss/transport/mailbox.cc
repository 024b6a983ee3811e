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

RankOutbox::RankOutbox(int rank, int ranks)
    : rank_(rank), message_to_(static_cast<size_t>(ranks)) {
  destinations_.reserve(message_to_.size());
}

void RankOutbox::Start(const MessageHeader& operation) {
  operation_ = operation;
  for (const int destination : destinations_) {
    message_to_[static_cast<size_t>(destination)] = nullptr;
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
  message_to_[static_cast<size_t>(destination)] = place;
  destinations_.push_back(destination);
  return {place + kHeaderBytes, size.bytes};
}

void RankOutbox::Seal() {
  for (const int destination : destinations_) {
    std::byte* place = message_to_[static_cast<size_t>(destination)];
    auto& header = *std::launder(reinterpret_cast<MessageHeader*>(place));
    transport::Seal(header, {place + kHeaderBytes, header.payload_bytes});
  }
}

std::span<const std::byte> RankOutbox::MessageTo(int destination) const {
  const std::byte* place = message_to_[static_cast<size_t>(destination)];
  if (place == nullptr) return {};
  const auto& header =
      *std::launder(reinterpret_cast<const MessageHeader*>(place));
  return {place, kHeaderBytes + header.payload_bytes};
}

RankInbox::RankInbox(int rank, const TransportOptions& options)
    : rank_(rank),
      options_(options),
      expected_(static_cast<size_t>(options.ranks)),
      payload_(expected_.size()),
      bytes_from_(expected_.size()) {
  if (options.damage) copies_.resize(expected_.size());
}

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

std::span<const std::byte> RankInbox::ThroughDamage(
    int source, int attempt, std::span<const std::byte> message) {
  Matrix<std::byte>& copy = copies_[static_cast<size_t>(source)];
  copy.ResizeUninitialized(1, message.size());
  std::memcpy(copy.data(), message.data(), message.size());
  options_.damage(source, rank_, attempt, {copy.data(), copy.size()});
  return {copy.data(), copy.size()};
}

bool RankInbox::Deliver(int source, int attempt,
                        std::span<const std::byte> message) {
  const MessageSize& size = expected(source);
  if (message.empty()) {
    if (size.rows == 0) return true;
    Refuse(source, fmt::format("nothing was sent, but {} rows in {} bytes are "
                               "expected",
                               size.rows, size.bytes));
  }
  if (options_.damage) message = ThroughDamage(source, attempt, message);
  const MessageHeader due = DueHeader(operation_, source, rank_, size);
  const Verdict verdict = Check(message, due);
  if (verdict == Verdict::kGood) {
    payload_[static_cast<size_t>(source)] = message.subspan(kHeaderBytes);
    if (MovesRows(due.kind)) {
      bytes_from_[static_cast<size_t>(source)] +=
          static_cast<int64_t>(size.bytes);
      ++messages_;
    }
    ++delivered_;
    resends_ += attempt;
    return true;
  }
  if (verdict == Verdict::kWrong) Refuse(source, Explain(message, due));
  if (attempt == 0) {
    ++crc_failures_;
    return false;
  }
  Refuse(source, "damaged twice: " + Explain(message, due));
}

void RankInbox::DeliverLocal(int source, std::span<const std::byte> message) {
  if (!Deliver(source, 0, message)) Deliver(source, 1, message);
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
  counters.crc_failures += std::exchange(crc_failures_, 0);
  counters.resends += std::exchange(resends_, 0);
}

}  // namespace isoloss::transport
