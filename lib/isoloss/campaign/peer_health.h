// What processes of a job find out about each other before the first step:
// whether all answer, how fast their links are, whether they damage bytes,
// whether their clocks agree.
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

namespace isoloss::campaign {

/// One way of a link, as the process finds it that measured it.
struct PeerLink {
  int peer = 0;
  double bytes_per_second = 0;  ///< one way, with checksums as a run sends
  double seconds = 0;           ///< of the shortest way there and back, halved
  double clock_ahead = 0;       ///< of the peer's clock, known to `seconds`
  /// "does not answer ..." or "damages ...": "" if all is well.
  std::string problem = {};
};

/// The conversation of one process with all others. Every wait has an end, and
/// whoever waits answers others meanwhile, so that one that hangs delays the
/// rest once each.
class PeerTalk {
 public:
  using Seconds = std::chrono::duration<double>;

  /// No wait for one peer, or for all, is longer than `deadline`. All bytes
  /// that have arrived from a process's own run of the same link must be taken.
  PeerTalk(transport::Link& link, Seconds deadline);
  ~PeerTalk();
  PeerTalk(const PeerTalk&) = delete;
  PeerTalk& operator=(const PeerTalk&) = delete;

  int index() const { return link_.index(); }
  int size() const { return link_.size(); }

  /// Tells each peer `mine` and waits for what they tell; of a process that
  /// does not answer it is "". To be called in the same order by all.
  std::vector<std::string> Exchange(const std::string& mine);

  /// Times the links to all peers that answer, at most 31 of them: of more
  /// processes, those that follow this one. Takes about `budget`, and the
  /// deadline at a peer that hangs.
  std::vector<PeerLink> MeasureLinks(Seconds budget);

  /// Sends `report` to process 0 and waits for what it concludes; "" if it
  /// does not answer. Not for process 0.
  std::string Report(const std::string& report);
  /// Of process 0: what the others report by now or until the deadline.
  std::vector<std::string> Collect(const std::string& mine);
  /// Of process 0: answers all who reported.
  void Conclude(const std::string& conclusion);

  /// Why a peer is sick, as this process has seen it; "" if it has not.
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

}  // namespace isoloss::campaign
