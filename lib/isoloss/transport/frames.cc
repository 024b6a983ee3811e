#include "isoloss/transport/frames.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace isoloss::transport {
namespace {

size_t Slot(uint64_t sequence) { return sequence % 2; }

}  // namespace

FrameExchange::FrameExchange(Link& link, uint64_t run_id,
                             double deadline_seconds, Failure& failure)
    : link_(link),
      run_id_(run_id),
      deadline_(deadline_seconds),
      failure_(failure),
      peers_(static_cast<size_t>(link.size())) {
  for (int peer = 0; peer < link.size(); ++peer) {
    if (peer == link.index()) continue;
    peers_[static_cast<size_t>(peer)] = std::make_unique<Peer>();
  }
}

FrameExchange::~FrameExchange() {
  // The link reads the buffers of frames that have not left. A peer that is
  // gone never takes them. Then they are leaked, so that the link never reads
  // freed memory.
  const auto idle = [&] {
    bool all = ControlsHaveLeft();
    ForPeers([&](int peer) { all = all && At(peer).sent.outstanding == 0; });
    return all;
  };
  const auto poll = [&] {
    try {
      return PollUntil(kFarewell, idle);
    } catch (const Error&) {
      return false;
    }
  };
  if (poll()) return;
  for (auto& control : controls_) static_cast<void>(control.release());
  for (auto& peer : peers_) static_cast<void>(peer.release());
}

template <typename Visit>
void FrameExchange::ForPeers(const Visit& visit) const {
  for (int peer = 0; peer < link_.size(); ++peer) {
    if (peer != link_.index()) visit(peer);
  }
}

void FrameExchange::Refuse(int peer, const std::string& problem) const {
  ThrowError(ErrorKind::kTransport, "{}: process {}, frame from process {}: {}",
             Where(operation_), link_.index(), peer, problem);
}

/// Polls until `done` or for `longest`; returns whether `done` became true.
template <typename Done>
bool FrameExchange::PollUntil(Seconds longest, const Done& done) {
  constexpr int kPatience = 100;  // polls before it yields the processor
  // A process that only yields keeps its whole share of a busy machine, which
  // the awaited process needs. So it naps once a nap is short compared to the
  // wait.
  constexpr std::chrono::milliseconds kAwake{1};
  constexpr std::chrono::microseconds kNap{50};
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(
                               std::min(longest, kLongestWait));
  for (int polls = 0;; ++polls) {
    Progress();
    if (done()) return true;
    if (polls < kPatience) continue;
    const auto now = Clock::now();
    if (now >= end) return false;
    if (now - begin < kAwake) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

/// Waits until `there(peer)` holds for all peers. Adds to each peer's
/// wait_seconds the time until it held.
template <typename There>
void FrameExchange::AwaitPeers(const There& there) {
  const auto begin = Clock::now();
  std::vector<int> missing;
  ForPeers([&](int peer) { missing.push_back(peer); });
  bool told = false;
  const bool done = PollUntil(deadline_, [&] {
    if (!told && Clock::now() - begin > deadline_ / 2) {
      TellWaiting(missing);
      told = true;
    }
    std::erase_if(missing, [&](int peer) {
      if (!there(peer)) return false;
      At(peer).wait_seconds += Seconds(Clock::now() - begin).count();
      return true;
    });
    failure_.Check();
    for (const int peer : missing) {
      if (At(peer).goodbye) {
        ThrowError(ErrorKind::kTransport,
                   "{}: process {} has ended its run, but process {} needs it "
                   "for this operation (operation {})",
                   Where(operation_), peer, link_.index(), operation_.sequence);
      }
    }
    return missing.empty();
  });
  if (!done) GiveUp(begin, SayMissing(missing));
}

void FrameExchange::GiveUp(Clock::time_point begin,
                           const std::string& awaited) const {
  ThrowError(
      ErrorKind::kTransport,
      "{}: process {} waited {:.3g} s for {}, but the deadline is {:.3g} "
      "s. Look what became of it, or give a longer deadline.",
      Where(operation_), link_.index(), Seconds(Clock::now() - begin).count(),
      awaited, deadline_.count());
}

/// Waits form chains: a process that waits for a waiting one must be able to
/// say for whom that one waits.
void FrameExchange::TellWaiting(const std::vector<int>& missing) {
  const std::string text =
      fmt::format("{}, for {}", Where(operation_), SayMissing(missing));
  ForPeers([&](int peer) { PostControl(peer, Magic::kWaiting, text); });
}

std::string FrameExchange::SayMissing(const std::vector<int>& missing) const {
  std::string text;
  for (const int peer : missing) {
    text += fmt::format("{}process {}", text.empty() ? "" : " and ", peer);
    const std::string& reason = At(peer).waits_for;
    if (!reason.empty()) text += fmt::format(" (which waits in {})", reason);
  }
  return text;
}

void FrameExchange::Start(const MessageHeader& operation) {
  if (!link_.broken.empty()) {
    throw Error(ErrorKind::kTransport, link_.broken);
  }
  // The frames of the previous operation have been read. The next operation
  // uses their slot.
  ForPeers([&](int peer) {
    At(peer).received[Slot(operation.sequence + 1)].here = false;
  });
  operation_ = operation;
  // Frames that came before this operation began have not been compared with
  // it.
  ForPeers([&](int peer) {
    const ReceivedFrame& early = At(peer).received[Slot(operation.sequence)];
    if (early.here) CheckOperation(peer, HeaderOf(early.parcel.span()));
  });
  while (!link_.held.empty() &&
         HeaderOf(link_.held.front().span()).run_id <= run_id_) {
    Parcel parcel = std::move(link_.held.front());
    link_.held.pop_front();
    Handle(parcel);
  }
}

std::span<std::byte> FrameExchange::Prepare(int peer, size_t payload_bytes) {
  Outgoing& frame = At(peer).sent;
  const auto begin = Clock::now();
  if (!PollUntil(deadline_, [&] {
        failure_.Check();
        return frame.outstanding == 0;
      })) {
    GiveUp(begin,
           fmt::format("process {} to take the frame of the operation before",
                       peer));
  }
  frame.bytes.ResizeUninitialized(1, kHeaderBytes + payload_bytes);
  return {frame.bytes.data() + kHeaderBytes, payload_bytes};
}

void FrameExchange::Send(int peer, size_t checked_bytes) {
  Post(peer, Magic::kFrame, checked_bytes, At(peer).sent);
}

/// Seals `frame`, whose payload is written, and sends it.
void FrameExchange::Post(int peer, Magic magic, size_t checked_bytes,
                         Outgoing& frame) {
  std::span<std::byte> bytes(frame.bytes.data(), frame.bytes.size());
  MessageHeader header = operation_;
  header.magic = magic;
  header.run_id = run_id_;
  header.source = static_cast<uint16_t>(link_.index());
  header.destination = static_cast<uint16_t>(peer);
  header.payload_bytes = bytes.size() - kHeaderBytes;
  header.rows = checked_bytes;
  Seal(header, bytes.subspan(kHeaderBytes, checked_bytes));
  std::memcpy(bytes.data(), &header, kHeaderBytes);
  const size_t most = link_.most_parcel_bytes();
  for (; bytes.size() > most; bytes = bytes.subspan(most)) {
    link_.Post(peer, /*more=*/true, bytes.first(most), &frame.outstanding);
  }
  link_.Post(peer, /*more=*/false, bytes, &frame.outstanding);
}

void FrameExchange::PostControl(int peer, Magic magic,
                                const std::string& text) {
  std::erase_if(controls_, [](const auto& c) { return c->outstanding == 0; });
  Outgoing& control = *controls_.emplace_back(std::make_unique<Outgoing>());
  control.bytes.ResizeUninitialized(1, kHeaderBytes + text.size());
  std::memcpy(control.bytes.data() + kHeaderBytes, text.data(), text.size());
  Post(peer, magic, text.size(), control);
}

bool FrameExchange::ControlsHaveLeft() const {
  return std::all_of(controls_.begin(), controls_.end(),
                     [](const auto& c) { return c->outstanding == 0; });
}

void FrameExchange::AwaitAll() {
  const size_t slot = Slot(operation_.sequence);
  AwaitPeers([&](int peer) { return At(peer).received[slot].here; });
}

std::span<const std::byte> FrameExchange::PayloadFrom(int peer) const {
  return At(peer).received[Slot(operation_.sequence)].parcel.span().subspan(
      kHeaderBytes);
}

void FrameExchange::AbortPeers(const std::string& reason) {
  if (told_by_peer_) return;  // the peer that told this process tells all
  const std::string text = fmt::format("process {}: {}", link_.index(), reason);
  // The wait is short, since a peer that does not listen is given up.
  try {
    ForPeers([&](int peer) { PostControl(peer, Magic::kAbort, text); });
    PollUntil(kFarewell, [&] { return ControlsHaveLeft(); });
  } catch (const Error&) {  // a peer's frame is of no interest any more
  }
}

void FrameExchange::Finish() {
  try {
    ForPeers([&](int peer) { PostControl(peer, Magic::kGoodbye, ""); });
    PollUntil(deadline_, [&] {
      bool all = true;
      ForPeers([&](int peer) { all = all && At(peer).goodbye; });
      return all || failure_.has_reason();
    });
  } catch (const Error& error) {
    failure_.Set(error.what());
    link_.broken = error.what();
  }
}

double FrameExchange::TakeWait(int peer) {
  return std::exchange(At(peer).wait_seconds, 0.0);
}

}  // namespace isoloss::transport
