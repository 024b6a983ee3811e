// Sends frames: a frame has all messages of one process to another in one
// operation. Processes wait for each other here, so the watchdog is here, too.
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

/// Exchanges the frames of one run with all peers. No call waits longer than
/// the deadline: Prepare and AwaitAll then throw a TransportError that names
/// the missing processes. Any damaged frame is a TransportError that names both
/// processes.
///
/// A process that has all frames of operation k knows that every peer has begun
/// k, so has ended k - 1. Hence only frames of k + 1 can arrive early, and two
/// slots for received frames suffice.
class FrameExchange {
 public:
  FrameExchange(Link& link, uint64_t run_id, double deadline_seconds,
                Failure& failure);
  ~FrameExchange();

  /// Begins the next operation.
  void Start(const MessageHeader& operation);

  /// Returns memory for the payload of the frame to `peer`, 64-byte aligned.
  /// Waits until the previous frame has left.
  std::span<std::byte> Prepare(int peer, size_t payload_bytes);
  /// Sends the frame. Its CRC covers `checked_bytes` of the payload.
  void Send(int peer, size_t checked_bytes);

  /// Returns once this operation's frames of all peers have arrived.
  void AwaitAll();
  std::span<const std::byte> PayloadFrom(int peer) const;

  /// Tells the peers to end with `reason`. Waits a moment until that message
  /// has left.
  void AbortPeers(const std::string& reason);
  /// Says goodbye and waits until every peer has, or until the deadline, so
  /// that frames on the way arrive. A frame that arrives damaged meanwhile ends
  /// the next run on this link, or the job (Link::broken).
  void Finish();

  /// Returns the seconds waited for `peer` since the last call.
  double TakeWait(int peer);

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  /// Frames may take this long to leave after the end of a run.
  static constexpr Seconds kFarewell{0.2};
  /// Longer deadlines do not fit the clock.
  static constexpr Seconds kLongestWait{1e8};

  struct Outgoing {
    Matrix<std::byte> bytes;
    int outstanding = 0;
  };
  struct ReceivedFrame {
    bool here = false;
    Parcel parcel;
  };
  struct Peer {
    Outgoing sent;
    std::array<ReceivedFrame, 2> received;  // by sequence % 2
    Parcel partial;                         // begun by parcels with `more`
    bool goodbye = false;
    std::string waits_for;  // what it said while it waited
    double wait_seconds = 0;
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
  void Post(int peer, Magic magic, size_t checked_bytes, Outgoing& frame);
  void PostControl(int peer, Magic magic, const std::string& text);
  bool ControlsHaveLeft() const;
  /// Throws the error that `awaited` did not come before the deadline; the wait
  /// began at `begin`.
  [[noreturn]] void GiveUp(Clock::time_point begin,
                           const std::string& awaited) const;
  [[noreturn]] void Refuse(int peer, const std::string& problem) const;

  void Progress();
  static void Append(const Parcel& part, Parcel& whole);
  void Handle(Parcel& parcel);
  void HandleFrame(Parcel& parcel, const MessageHeader& header);
  void CheckOperation(int peer, const MessageHeader& header) const;

  Link& link_;
  const uint64_t run_id_;
  const Seconds deadline_;
  Failure& failure_;
  MessageHeader operation_;
  std::vector<std::unique_ptr<Peer>> peers_;         // null: this process
  std::vector<std::unique_ptr<Outgoing>> controls_;  // small frames of our own
  Parcel incoming_;
  bool told_by_peer_ = false;  // that all is over
};

}  // namespace isoloss::transport
