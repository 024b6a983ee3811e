#include "isoloss/transport/process_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace isoloss::transport {
namespace {

constexpr size_t kAlignment = 64;

constexpr size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Lays out a frame of AllToAll. It begins with the end of each receiving
/// rank's section, as uint64_t from the start of the payload, padded. The
/// sections follow, each with the messages for one rank in the order of
/// sources.
class SectionDirectory {
 public:
  explicit SectionDirectory(RankRange receivers) : receivers_(receivers) {}

  size_t bytes() const {
    return Aligned(static_cast<size_t>(receivers_.size()) * sizeof(uint64_t));
  }
  size_t End(std::span<const std::byte> payload, int rank) const {
    if (rank < receivers_.first) return bytes();
    uint64_t end = 0;
    std::memcpy(&end, payload.data() + Offset(rank), sizeof(end));
    return end;
  }
  void SetEnd(std::span<std::byte> payload, int rank, uint64_t end) const {
    std::memcpy(payload.data() + Offset(rank), &end, sizeof(end));
  }
  std::span<const std::byte> Section(std::span<const std::byte> payload,
                                     int rank) const {
    // The frame has no directory if the peer called an AllGather of the same
    // kind of operation.
    if (payload.size() >= bytes()) {
      const size_t begin = End(payload, rank - 1);
      const size_t end = End(payload, rank);
      if (bytes() <= begin && begin <= end && end <= payload.size() &&
          (end - begin) % kAlignment == 0) {
        return payload.subspan(begin, end - begin);
      }
    }
    ThrowError(ErrorKind::kTransport,
               "the frame is not one of an all-to-all. All processes must call "
               "the same operations in the same order.");
  }

 private:
  size_t Offset(int rank) const {
    return static_cast<size_t>(rank - receivers_.first) * sizeof(uint64_t);
  }

  RankRange receivers_;
};

}  // namespace

ProcessTransport::ProcessTransport(const char* name,
                                   const TransportOptions& options,
                                   ThreadTeam& team, uint64_t run_id,
                                   Link* link)
    : name_(name),
      options_(options),
      team_(team),
      link_(link),
      run_id_(run_id) {
  local_ = RanksOf(process());
  outboxes_.reserve(static_cast<size_t>(local_.size()));
  inboxes_.reserve(outboxes_.capacity());
  for (int rank = local_.first; rank < local_.end; ++rank) {
    outboxes_.emplace_back(rank, options_);
    inboxes_.emplace_back(rank, ranks());
  }
  if (processes() > 1) {
    frames_ = std::make_unique<FrameExchange>(
        *link_, run_id_, options_.deadline_seconds, failure_);
  }
}

ProcessTransport::~ProcessTransport() {
  if (frames_ == nullptr) return;
  if (failure_.has_reason()) {
    TellPeers();
  } else {
    frames_->Finish();
  }
}

/// Runs an operation. The first error of any rank becomes the reason of all.
template <typename Body>
void ProcessTransport::Guarded(const Body& body) {
  try {
    failure_.Check();
    body();
    failure_.Check();
  } catch (const std::exception& error) {
    failure_.Set(error.what());
    TellPeers();
    failure_.Check();
  }
}

void ProcessTransport::TellPeers() {
  if (frames_ == nullptr || std::exchange(peers_told_, true)) return;
  frames_->AbortPeers(failure_.reason());
}

void ProcessTransport::StartOperation(const Operation& operation) {
  operation_ = OperationHeader(operation, run_id_, step_, ++sequence_);
  if (frames_) frames_->Start(operation_);
}

template <typename Body>
void ProcessTransport::ForLocalRanks(const Body& body) {
  team_.ParallelFor(inboxes_.size(), [&](size_t i) {
    failure_.Check();
    body(local_.first + static_cast<int>(i));
  });
}

template <typename Visit>
void ProcessTransport::ForPeers(const Visit& visit) const {
  for (int peer = 0; peer < processes(); ++peer) {
    if (peer != process()) visit(peer);
  }
}

void ProcessTransport::AllToAll(const Operation& operation,
                                const Produce& produce, const Expect& expect,
                                const Consume& consume) {
  Guarded([&] {
    StartOperation(operation);
    ForLocalRanks([&](int rank) {
      RankOutbox& outbox = outboxes_[Local(rank)];
      outbox.Start(operation_);
      RunPhase(operation_, rank, "produce", [&] { produce(rank, outbox); });
      outbox.Seal();
    });
    if (frames_) {
      SendMessages();
      frames_->AwaitAll();
    }
    ForLocalRanks([&](int rank) {
      Deliver(rank, expect);
      RunPhase(operation_, rank, "consume",
               [&] { consume(rank, inboxes_[Local(rank)]); });
    });
  });
}

/// Gives `rank` all messages for it.
void ProcessTransport::Deliver(int rank, const Expect& expect) {
  RankInbox& inbox = inboxes_[Local(rank)];
  RunPhase(operation_, rank, "expect",
           [&] { inbox.Start(operation_, expect); });
  for (int source = local_.first; source < local_.end; ++source) {
    inbox.Deliver(source, outboxes_[Local(source)].MessageTo(rank));
  }
  ForPeers([&](int peer) { DeliverSection(rank, peer); });
}

/// Walks through the messages of `peer`'s ranks to `rank`. Refuses a message
/// that has another length than expected.
void ProcessTransport::DeliverSection(int rank, int peer) {
  RankInbox& inbox = inboxes_[Local(rank)];
  auto rest =
      SectionDirectory(local_).Section(frames_->PayloadFrom(peer), rank);
  const RankRange sources = RanksOf(peer);
  for (int source = sources.first; source < sources.end; ++source) {
    const MessageSize& due = inbox.expected(source);
    // A damaged header can't say which source it has, so its message counts as
    // the next one due. An intact message of another source stands in the place
    // of a missing one.
    const bool comes = !rest.empty() && (HeaderDamage(rest).empty()
                                             ? HeaderOf(rest).source == source
                                             : due.rows > 0);
    try {
      inbox.Deliver(
          source,
          rest.first(comes ? std::min(rest.size(), kHeaderBytes + due.bytes)
                           : 0));
    } catch (const Error& error) {
      const std::string text = error.what();
      ThrowError(error.kind(), "{}{} Process {} sent it to process {}.", text,
                 text.ends_with('.') ? "" : ".", peer, process());
    }
    if (comes)
      rest = rest.subspan(std::min(rest.size(), PaddedBytes(due.bytes)));
  }
  if (rest.empty()) return;
  ThrowError(
      ErrorKind::kTransport,
      "{}: {} bytes more than expected came for rank {} from ranks {} to "
      "{}",
      Where(operation_), rest.size(), rank, sources.first, sources.end - 1);
}

void ProcessTransport::SendMessages() {
  ForPeers([&](int peer) {
    const RankRange receivers = RanksOf(peer);
    const SectionDirectory directory(receivers);
    size_t bytes = directory.bytes();
    for (int rank = receivers.first; rank < receivers.end; ++rank) {
      for (const RankOutbox& outbox : outboxes_) {
        bytes += Aligned(outbox.MessageTo(rank).size());
      }
    }
    const std::span<std::byte> payload = frames_->Prepare(peer, bytes);
    size_t end = directory.bytes();
    for (int rank = receivers.first; rank < receivers.end; ++rank) {
      for (const RankOutbox& outbox : outboxes_) {
        const auto message = outbox.MessageTo(rank);
        if (message.empty()) continue;
        std::memcpy(payload.data() + end, message.data(), message.size());
        end += Aligned(message.size());
      }
      directory.SetEnd(payload, rank, end);
    }
    frames_->Send(peer, directory.bytes());
  });
}

std::span<const std::byte> ProcessTransport::AllGather(
    const Operation& operation, size_t bytes,
    const std::function<void(int rank, std::span<std::byte> mine)>& fill) {
  Guarded([&] {
    StartOperation(operation);
    gathered_.ResizeUninitialized(static_cast<size_t>(ranks()), bytes);
    ForLocalRanks([&](int rank) {
      RunPhase(operation_, rank, "fill", [&] {
        fill(rank, {gathered_.Row(static_cast<size_t>(rank)), bytes});
      });
    });
    if (frames_) GatherFromPeers(bytes);
  });
  return {gathered_.data(), gathered_.size()};
}

void ProcessTransport::GatherFromPeers(size_t bytes) {
  const size_t mine = inboxes_.size() * bytes;
  const auto copy = [](std::byte* to, const std::byte* from, size_t count) {
    if (count > 0) std::memcpy(to, from, count);
  };
  ForPeers([&](int peer) {
    copy(frames_->Prepare(peer, mine).data(),
         gathered_.Row(static_cast<size_t>(local_.first)), mine);
    frames_->Send(peer, mine);
  });
  frames_->AwaitAll();
  ForPeers([&](int peer) {
    const RankRange theirs = RanksOf(peer);
    const auto payload = frames_->PayloadFrom(peer);
    const size_t due = static_cast<size_t>(theirs.size()) * bytes;
    if (payload.size() != due) {
      ThrowError(ErrorKind::kTransport,
                 "{}: ranks {} to {} of process {} contribute {} bytes, but {} "
                 "are expected",
                 Where(operation_), theirs.first, theirs.end - 1, peer,
                 payload.size(), due);
    }
    copy(gathered_.Row(static_cast<size_t>(theirs.first)), payload.data(), due);
  });
}

void ProcessTransport::Abort(const std::string& reason) {
  failure_.Set(reason);
  // Only the owner may use the link. So its present or next call tells the
  // peers.
  if (std::this_thread::get_id() == owner_) TellPeers();
}

Counters ProcessTransport::TakeCounters() {
  Counters counters;
  counters.bytes.Resize(static_cast<size_t>(ranks()),
                        static_cast<size_t>(ranks()));
  counters.wait_seconds.resize(static_cast<size_t>(ranks()));
  for (RankInbox& inbox : inboxes_) inbox.MoveCountersTo(counters);
  if (frames_ == nullptr) return counters;
  ForPeers([&](int peer) {
    const RankRange sources = RanksOf(peer);
    std::fill(counters.wait_seconds.begin() + sources.first,
              counters.wait_seconds.begin() + sources.end,
              frames_->TakeWait(peer));
  });
  return counters;
}

}  // namespace isoloss::transport
