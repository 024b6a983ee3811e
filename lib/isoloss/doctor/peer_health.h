// Lets the processes of a job examine each other before the first step. They
// learn whether all answer, how fast their links are, whether links damage
// bytes, and whether the clocks agree.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/transport/link.h"
#include "isoloss/transport/message.h"

namespace isoloss::doctor {

/// A PeerLink is one way of a link, as seen by the process that measured it.
struct PeerLink {
  int peer = 0;
  double bytes_per_second = 0;  ///< one way, with checksums as a run sends
  double seconds = 0;           ///< of the shortest way there and back, halved
  double clock_ahead = 0;       ///< of the peer's clock, known to `seconds`
  /// Says "does not answer ..." or "damages ..."; "" if all is well.
  std::string problem = {};
};

/// Lets one process talk with all its peers. Every wait has an end, and a
/// process that waits answers its peers meanwhile. So a process that hangs
/// delays each of the rest once.
class PeerTalk {
 public:
  using Seconds = std::chrono::duration<double>;

  /// No wait for one peer, or for all, is longer than `deadline`. The process
  /// must have taken all bytes that arrived for its own earlier run on the same
  /// link.
  PeerTalk(transport::Link& link, Seconds deadline);
  ~PeerTalk();
  PeerTalk(const PeerTalk&) = delete;
  PeerTalk& operator=(const PeerTalk&) = delete;

  int index() const { return link_.index(); }
  int size() const { return link_.size(); }

  /// Tells each peer `mine` and returns what each peer tells; "" for a peer
  /// that does not answer. All processes must make these calls in the same
  /// order.
  std::vector<std::string> Exchange(const std::string& mine);

  /// Times the links to all peers that answer. If there are more than 31 peers,
  /// it times the 31 that follow this process. Takes about `budget`, and the
  /// deadline for a peer that hangs.
  std::vector<PeerLink> MeasureLinks(Seconds budget);

  /// Sends `report` to process 0 and returns its conclusion; "" if it does not
  /// answer. Process 0 must not call it.
  std::string Report(const std::string& report);
  /// Process 0 calls it. Returns the reports that have come, or come before the
  /// deadline.
  std::vector<std::string> Collect(const std::string& mine);
  /// Process 0 calls it. Sends its conclusion to all peers.
  void Conclude(const std::string& conclusion);

  /// Says why a peer is sick, as this process has seen; "" if it has seen no
  /// problem.
  const std::string& ProblemOf(int peer) const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Kind : uint64_t {
    kTell = 1,
    kPing,
    kPong,
    kBlock,
    kTaken,
    kReport,
    kConclusion
  };
  struct Sent {
    Matrix<std::byte> bytes;
    int outstanding = 0;
  };
  struct Peer {
    std::deque<std::string> told;
    std::string report;
    bool reported = false;
    std::string problem;
    uint64_t answered = 0;  // number of the last question that it answered
    double its_clock = 0;   // in its last answer
  };

  void Send(int peer, Kind kind, uint64_t number, const void* bytes,
            size_t size);
  void Send(int peer, Kind kind, const std::string& text);
  void Serve();
  void Handle(const transport::Parcel& parcel);
  template <typename Done>
  bool ServeUntil(Clock::time_point end, const Done& done);
  bool Ask(int peer, Kind kind, const std::vector<std::byte>& bytes);
  PeerLink Measure(int peer, Seconds budget);
  void Blame(int peer, const std::string& problem);

  transport::Link& link_;
  const Seconds deadline_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Sent>> sent_;
  transport::Parcel incoming_;
  std::string conclusion_;
  bool concluded_ = false;
  uint64_t question_ = 0;
};

}  // namespace isoloss::doctor
