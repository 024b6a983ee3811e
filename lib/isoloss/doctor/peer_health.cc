#include "isoloss/doctor/peer_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "isoloss/doctor/node_health.h"

namespace isoloss::doctor {
namespace {

using transport::HeaderOf;
using transport::kHeaderBytes;
using transport::MessageHeader;

/// A block is large enough that the rate is that of the link. It is small
/// compared to what a run sends in a step.
constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr int kMostPeers = 31;
/// This program sends no longer texts of hosts and reports.
constexpr size_t kMostText = size_t{1} << 20;

}  // namespace

PeerTalk::PeerTalk(transport::Link& link, Seconds deadline)
    : link_(link),
      deadline_(deadline),
      peers_(static_cast<size_t>(link.size())) {}

PeerTalk::~PeerTalk() {
  // The link reads buffers that have not left. If a hanging peer never takes
  // them, they are leaked.
  constexpr Seconds kFarewell{0.2};
  const auto idle = [&] {
    return std::ranges::all_of(
        sent_, [](const auto& sent) { return sent->outstanding == 0; });
  };
  try {
    const auto end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(kFarewell);
    if (ServeUntil(end, idle)) return;
  } catch (const std::exception&) {  // the link is broken
  }
  for (auto& sent : sent_) static_cast<void>(sent.release());
}

void PeerTalk::Send(int peer, Kind kind, uint64_t number, const void* bytes,
                    size_t size) {
  std::erase_if(sent_, [](const auto& s) { return s->outstanding == 0; });
  Sent& sent = *sent_.emplace_back(std::make_unique<Sent>());
  sent.bytes.ResizeUninitialized(1, kHeaderBytes + size);
  if (size > 0) std::memcpy(sent.bytes.data() + kHeaderBytes, bytes, size);
  MessageHeader header{.kind = transport::OpKind::kBarrier,
                       .sequence = number,
                       .source = static_cast<uint16_t>(index()),
                       .destination = static_cast<uint16_t>(peer),
                       .rows = static_cast<uint64_t>(kind),
                       .payload_bytes = size};
  transport::Seal(header, {sent.bytes.data() + kHeaderBytes, size});
  std::memcpy(sent.bytes.data(), &header, kHeaderBytes);
  link_.Post(peer, /*more=*/false, {sent.bytes.data(), sent.bytes.size()},
             &sent.outstanding);
}

void PeerTalk::Send(int peer, Kind kind, const std::string& text) {
  Send(peer, kind, 0, text.data(), text.size());
}

void PeerTalk::Blame(int peer, const std::string& problem) {
  std::string& kept = peers_[static_cast<size_t>(peer)].problem;
  if (kept.empty()) kept = problem;
}

const std::string& PeerTalk::ProblemOf(int peer) const {
  return peers_[static_cast<size_t>(peer)].problem;
}

void PeerTalk::Serve() {
  while (link_.Poll(incoming_)) Handle(incoming_);
}

void PeerTalk::Handle(const transport::Parcel& parcel) {
  Peer& peer = peers_[static_cast<size_t>(parcel.peer)];
  const auto bytes = parcel.span();
  std::string damage = transport::HeaderDamage(bytes);
  if (damage.empty()) {
    damage = transport::PayloadDamage(bytes, bytes.size() - kHeaderBytes);
  }
  if (!damage.empty()) {
    Blame(parcel.peer, fmt::format("what process {} sent to process {} was {}",
                                   parcel.peer, index(), damage));
    return;
  }
  const MessageHeader header = HeaderOf(bytes);
  const auto payload = bytes.subspan(kHeaderBytes);
  const std::string text(
      reinterpret_cast<const char*>(payload.data()),
      payload.size() <= kMostText ? payload.size() : size_t{0});
  switch (static_cast<Kind>(header.rows)) {
    case Kind::kTell:
      peer.told.push_back(text);
      return;
    case Kind::kPing:
    case Kind::kBlock: {
      const double now = WallSeconds();
      const bool ping = static_cast<Kind>(header.rows) == Kind::kPing;
      Send(parcel.peer, ping ? Kind::kPong : Kind::kTaken, header.sequence,
           &now, sizeof(now));
      return;
    }
    case Kind::kPong:
    case Kind::kTaken:
      peer.answered = header.sequence;
      if (payload.size() == sizeof(peer.its_clock)) {
        std::memcpy(&peer.its_clock, payload.data(), payload.size());
      }
      return;
    case Kind::kReport:
      peer.report = text;
      peer.reported = true;
      return;
    case Kind::kConclusion:
      conclusion_ = text;
      concluded_ = true;
      return;
  }
}

/// Answers peers until `done` or `end`; returns whether `done` became true.
template <typename Done>
bool PeerTalk::ServeUntil(Clock::time_point end, const Done& done) {
  // It naps as transport::FrameExchange does: a process that only yields keeps
  // a processor that the awaited process may need.
  constexpr int kPatience = 1000;
  constexpr std::chrono::microseconds kNap{50};
  for (int polls = 0;; ++polls) {
    Serve();
    if (done()) return true;
    if (Clock::now() >= end) return false;
    if (polls >= kPatience) {
      std::this_thread::sleep_for(kNap);
    } else {
      std::this_thread::yield();
    }
  }
}

std::vector<std::string> PeerTalk::Exchange(const std::string& mine) {
  std::vector<std::string> told(peers_.size());
  told[static_cast<size_t>(index())] = mine;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != index()) Send(peer, Kind::kTell, mine);
  }
  const auto answered = [&](int peer) {
    const Peer& of = peers_[static_cast<size_t>(peer)];
    return peer == index() || !of.told.empty() || !of.problem.empty();
  };
  ServeUntil(
      Clock::now() + std::chrono::duration_cast<Clock::duration>(deadline_),
      [&] {
        for (int peer = 0; peer < size(); ++peer) {
          if (!answered(peer)) return false;
        }
        return true;
      });
  for (int peer = 0; peer < size(); ++peer) {
    std::deque<std::string>& from = peers_[static_cast<size_t>(peer)].told;
    if (!from.empty()) {
      told[static_cast<size_t>(peer)] = from.front();
      from.pop_front();
    } else if (!answered(peer)) {
      Blame(peer, fmt::format("process {} has not answered process {} for "
                              "{:.3g} s",
                              peer, index(), deadline_.count()));
    }
  }
  return told;
}

/// Asks and waits for the answer; returns false if none comes.
bool PeerTalk::Ask(int peer, Kind kind, const std::vector<std::byte>& bytes) {
  const uint64_t number = ++question_;
  Peer& of = peers_[static_cast<size_t>(peer)];
  Send(peer, kind, number, bytes.data(), bytes.size());
  const bool answered = ServeUntil(
      Clock::now() + std::chrono::duration_cast<Clock::duration>(deadline_),
      [&] { return of.answered == number || !of.problem.empty(); });
  if (!answered) {
    Blame(peer,
          fmt::format("process {} has not answered process {} for {:.3g} s",
                      peer, index(), deadline_.count()));
  }
  return of.problem.empty();
}

PeerLink PeerTalk::Measure(int peer, Seconds budget) {
  constexpr int kFewest = 3;
  PeerLink link{.peer = peer};
  const Peer& of = peers_[static_cast<size_t>(peer)];
  const auto begin = Clock::now();
  const auto passed = [&] { return Seconds(Clock::now() - begin); };
  const std::vector<std::byte> none;
  double shortest = deadline_.count();
  for (int i = 0; i < kFewest || passed() < budget / 4; ++i) {
    const auto asked = Clock::now();
    const double before = WallSeconds();
    if (!Ask(peer, Kind::kPing, none)) break;
    const double took = Seconds(Clock::now() - asked).count();
    if (took >= shortest) continue;
    shortest = took;
    link.clock_ahead = of.its_clock - (before + took / 2);
  }
  link.seconds = shortest / 2;
  std::vector<std::byte> block(kBlockBytes);
  for (size_t i = 0; i < block.size(); ++i) {
    block[i] = static_cast<std::byte>(i * 37 + i / 251);
  }
  for (int i = 0; of.problem.empty() && (i < kFewest || passed() < budget);
       ++i) {
    const auto asked = Clock::now();
    if (!Ask(peer, Kind::kBlock, block)) break;
    // The time of the answer's way back does not belong to the block.
    const double took = Seconds(Clock::now() - asked).count() - link.seconds;
    if (took > 0) {
      link.bytes_per_second = std::max(link.bytes_per_second,
                                       static_cast<double>(kBlockBytes) / took);
    }
  }
  link.problem = of.problem;
  return link;
}

std::vector<PeerLink> PeerTalk::MeasureLinks(Seconds budget) {
  std::vector<PeerLink> links;
  const int count = std::min(size() - 1, kMostPeers);
  for (int i = 1; i <= count; ++i) {
    const int peer = (index() + i) % size();
    if (ProblemOf(peer).empty()) {
      links.push_back(Measure(peer, budget / count));
    } else {
      links.push_back({.peer = peer, .problem = ProblemOf(peer)});
    }
  }
  return links;
}

std::vector<std::string> PeerTalk::Collect(const std::string& mine) {
  const auto settled = [&](int peer) {
    const Peer& of = peers_[static_cast<size_t>(peer)];
    return peer == index() || of.reported || !of.problem.empty();
  };
  // Each process may have to wait once for a peer that hangs, before it
  // reports.
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(2 * deadline_);
  ServeUntil(end, [&] {
    for (int peer = 0; peer < size(); ++peer) {
      if (!settled(peer)) return false;
    }
    return true;
  });
  std::vector<std::string> reports(peers_.size());
  for (int peer = 0; peer < size(); ++peer) {
    if (!settled(peer)) {
      Blame(peer, fmt::format("process {} has not reported to process {} for "
                              "{:.3g} s",
                              peer, index(), 2 * deadline_.count()));
    }
    reports[static_cast<size_t>(peer)] =
        peers_[static_cast<size_t>(peer)].report;
  }
  reports[static_cast<size_t>(index())] = mine;
  return reports;
}

void PeerTalk::Conclude(const std::string& conclusion) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != index()) Send(peer, Kind::kConclusion, conclusion);
  }
}

std::string PeerTalk::Report(const std::string& report) {
  Send(0, Kind::kReport, report);
  // Process 0 may have to wait for reports itself.
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(3 * deadline_);
  if (ProblemOf(0).empty() && !ServeUntil(end, [&] { return concluded_; })) {
    Blame(0, fmt::format("process 0 has not answered process {} for {:.3g} s",
                         index(), 3 * deadline_.count()));
  }
  return conclusion_;
}

}  // namespace isoloss::doctor
