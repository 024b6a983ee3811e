// Runs ranks as phases on a team of threads, in one process or in several:
// these are the transports `loop` (no peers) and `mpi`.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"
#include "isoloss/transport/failure.h"
#include "isoloss/transport/frames.h"
#include "isoloss/transport/link.h"
#include "isoloss/transport/mailbox.h"
#include "isoloss/transport/transport.h"

namespace isoloss::transport {

/// Each operation is two loops over the local ranks. Between the loops each
/// process sends one frame to each peer. Messages inside a process are not
/// copied: an inbox hands out the sender's buffer.
///
/// All members but Abort are for the thread that made the transport: only that
/// one may talk to MPI.
class ProcessTransport final : public Transport {
 public:
  /// `link` leads to the other processes; null means that there are none.
  /// `run_id` is the same in all processes and differs from those of earlier
  /// transports on the same link. `name` is a literal.
  ProcessTransport(const char* name, const TransportOptions& options,
                   ThreadTeam& team, uint64_t run_id, Link* link);
  /// Takes leave of the peers; waits for them at most for the deadline.
  ~ProcessTransport() override;

  const char* name() const override { return name_; }
  int ranks() const override { return options_.ranks; }
  RankRange local_ranks() const override { return local_; }
  int processes() const override { return link_ ? link_->size() : 1; }
  int process() const override { return link_ ? link_->index() : 0; }

  void BeginStep(int64_t step) override { step_ = step; }
  int64_t step() const override { return step_; }
  void AllToAll(const Operation& operation, const Produce& produce,
                const Expect& expect, const Consume& consume) override;
  std::span<const std::byte> AllGather(
      const Operation& operation, size_t bytes,
      const std::function<void(int rank, std::span<std::byte> mine)>& fill)
      override;
  void Abort(const std::string& reason) override;
  Counters TakeCounters() override;

 private:
  template <typename Body>
  void Guarded(const Body& body);
  void TellPeers();
  void StartOperation(const Operation& operation);
  template <typename Body>
  void ForLocalRanks(const Body& body);
  template <typename Visit>
  void ForPeers(const Visit& visit) const;

  void SendMessages();
  void Deliver(int rank, const Expect& expect);
  void DeliverSection(int rank, int peer);
  void GatherFromPeers(size_t bytes);

  size_t Local(int rank) const {
    return static_cast<size_t>(rank - local_.first);
  }

  const char* name_;
  const TransportOptions options_;
  ThreadTeam& team_;
  Link* link_;
  RankRange local_;
  uint64_t run_id_;
  int64_t step_ = 0;
  uint64_t sequence_ = 0;
  MessageHeader operation_;
  Failure failure_;
  bool peers_told_ = false;  // of the failure
  const std::thread::id owner_ = std::this_thread::get_id();
  std::unique_ptr<FrameExchange> frames_;  // null: no peers

  std::vector<RankOutbox> outboxes_;  // of local ranks
  std::vector<RankInbox> inboxes_;
  Matrix<std::byte> gathered_;
};

}  // namespace isoloss::transport
