// Keeps the messages that one rank sends and receives in one operation. Buffers
// are kept for the next operation, so a warm operation allocates nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/transport/message.h"
#include "isoloss/transport/transport.h"

namespace isoloss::transport {

/// Returns the part of the header that all messages of an operation share.
MessageHeader OperationHeader(const Operation& operation, uint64_t run_id,
                              int64_t step, uint64_t sequence);

/// Returns `operation` with the fields of one message filled in.
MessageHeader DueHeader(const MessageHeader& operation, int source,
                        int destination, const MessageSize& size);

/// The Outbox of one rank keeps sealed messages, each a header and its payload,
/// until the next Start.
class RankOutbox final : public Outbox {
 public:
  RankOutbox(int rank, const TransportOptions& options);

  /// Forgets the messages of the previous operation.
  void Start(const MessageHeader& operation);
  std::span<std::byte> Add(int destination, const MessageSize& size) override;
  /// Seals the messages. Call it once the payloads are written.
  void Seal();

  size_t messages() const { return destinations_.size(); }
  /// Returns the sealed message, empty if there is none.
  std::span<const std::byte> MessageTo(int destination) const {
    return message_to_[static_cast<size_t>(destination)];
  }

 private:
  std::byte* Allocate(size_t bytes);

  int rank_;
  const TransportOptions& options_;
  MessageHeader operation_;
  std::vector<std::span<std::byte>> message_to_;  // [V], empty: none
  std::vector<int> destinations_;                 // only those with a message
  /// Payloads may not move while a phase runs, so more room is a new chunk;
  /// Start merges the chunks.
  std::vector<Matrix<std::byte>> chunks_;
  size_t used_ = 0;  // of the last chunk
};

/// The Inbox of one rank also collects its part of Counters.
class RankInbox final : public Inbox {
 public:
  RankInbox(int rank, int ranks);

  /// Asks `expect` for the sizes of this rank's messages.
  void Start(const MessageHeader& operation, const Expect& expect);

  const MessageSize& expected(int source) const {
    return expected_[static_cast<size_t>(source)];
  }

  /// Delivers a message, which is kept by reference. If `message` is empty,
  /// there is none.
  /// Errors   TransportError if it is damaged or not the message that is due.
  void Deliver(int source, std::span<const std::byte> message);

  /// Returns how many messages were delivered.
  size_t delivered() const { return delivered_; }

  std::span<const std::byte> From(int source) const override;

  /// Adds this rank's counts to `counters` and starts again from zero.
  void MoveCountersTo(Counters& counters);

 private:
  [[noreturn]] void Refuse(int source, const std::string& problem) const;

  int rank_;
  MessageHeader operation_;
  std::vector<MessageSize> expected_;                // [V]
  std::vector<std::span<const std::byte>> payload_;  // [V]
  size_t delivered_ = 0;

  std::vector<int64_t> bytes_from_;  // [V]
  int64_t messages_ = 0;
};

/// Calls a phase of `rank` and turns what it throws into a TransportError that
/// names operation, rank and phase.
template <typename Phase>
void RunPhase(const MessageHeader& operation, int rank, const char* name,
              const Phase& phase) {
  try {
    phase();
  } catch (const std::exception& error) {
    ThrowError(ErrorKind::kTransport, "{}: rank {} failed in phase {}: {}",
               Where(operation), rank, name, error.what());
  }
}

}  // namespace isoloss::transport
