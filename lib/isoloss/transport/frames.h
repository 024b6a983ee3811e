// Frames: what one process sends another in one operation, all its messages in
// one piece. This is where a process waits for others, and so the watchdog.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/transport/failure.h"
#include "isoloss/transport/link.h"
#include "isoloss/transport/message.h"

namespace isoloss::transport {

/// The frames of one run with all peers. No call waits longer than the deadline
/// (SendAll, AwaitAll and AwaitAgain: a TransportError that names the missing
/// processes). While it waits, it serves peers that ask for a frame again.
///
/// A process that has all frames of operation k knows that every peer has begun
/// k, so has ended k - 1. Hence frames of two operations are all that can be
/// asked for again, and all that can arrive early: two slots do.
class FrameExchange {
 public:
  FrameExchange(Link& link, uint64_t run_id, double deadline_seconds,
                Failure& failure);
  ~FrameExchange();

  /// Begins the next operation.
  void Start(const MessageHeader& operation);

  /// Memory for the payload of the frame to `peer`, 64-byte aligned.
  std::span<std::byte> Prepare(int peer, size_t payload_bytes);
  /// Sends it; `checked_bytes` of the payload are covered by the frame's CRC.
  void Send(int peer, size_t checked_bytes);

  /// Returns when this operation's frames of all peers are there.
  void AwaitAll();
  std::span<const std::byte> PayloadFrom(int peer) const;
  /// Asks `peers` for this operation's frames once more and awaits them. The
  /// first ones stay valid.
  void AwaitAgain(std::span<const int> peers);
  std::span<const std::byte> SecondPayloadFrom(int peer) const;

  /// Tells the peers to end with `reason`. Waits a moment for it to leave.
  void AbortPeers(const std::string& reason);
  /// Says goodbye and waits until every peer has, or until the deadline: a peer
  /// may still need a frame again.
  void Finish();

  int64_t TakeFailures() { return std::exchange(crc_failures_, 0); }
  int64_t TakeResends() { return std::exchange(resends_, 0); }
  /// Seconds waited for `peer` since the last call.
  double TakeWait(int peer);

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  /// How long what is under way may take to leave once all is over.
  static constexpr Seconds kFarewell{0.2};
  /// Deadlines beyond it do not fit the clock.
  static constexpr Seconds kLongestWait{1e8};

  struct SentFrame {
    uint64_t sequence = 0;
    Matrix<std::byte> bytes;
    int outstanding = 0;
  };
  struct ReceivedFrame {
    bool here = false;
    bool asked_again = false;
    Parcel parcel;
  };
  struct Peer {
    std::array<SentFrame, 2> sent;          // by sequence % 2
    std::array<ReceivedFrame, 2> received;  // by sequence % 2
    ReceivedFrame second;                   // of this operation
    Parcel partial;                         // begun by parcels with `more`
    bool goodbye = false;
    std::string waits_for;  // what it said while it waited
    double wait_seconds = 0;
  };
  struct Control {  // a small frame of our own
    Matrix<std::byte> bytes;
    int outstanding = 0;
  };

  Peer& At(int peer) { return *peers_[static_cast<size_t>(peer)]; }
  const Peer& At(int peer) const { return *peers_[static_cast<size_t>(peer)]; }
  template <typename Visit>
  void ForPeers(const Visit& visit) const;
  template <typename Done>
  bool PollUntil(Seconds longest, const Done& done);
  template <typename There>
  void AwaitPeers(const There& there);
  void TellWaiting(const std::vector<int>& missing);
  std::string SayMissing(const std::vector<int>& missing) const;
  void PostWhole(int peer, std::span<const std::byte> bytes, int* outstanding);
  void PostControl(int peer, Magic magic, uint64_t sequence,
                   const std::string& text);
  [[noreturn]] void Refuse(int peer, const std::string& problem) const;

  void Progress();
  static void Append(const Parcel& part, Parcel& whole);
  void Handle(Parcel& parcel);
  void HandleFrame(Parcel& parcel, const MessageHeader& header);
  void HandleDamaged(int peer);
  void CheckOperation(int peer, const MessageHeader& header) const;
  void ResendTo(int peer, uint64_t sequence);
  bool IsAskedAgain(int peer) const;

  Link& link_;
  const uint64_t run_id_;
  const Seconds deadline_;
  Failure& failure_;
  MessageHeader operation_;
  std::vector<std::unique_ptr<Peer>> peers_;  // null: this process
  std::vector<std::unique_ptr<Control>> controls_;
  Parcel incoming_;
  bool told_by_peer_ = false;  // that all is over
  int64_t crc_failures_ = 0;
  int64_t resends_ = 0;
};

}  // namespace isoloss::transport
