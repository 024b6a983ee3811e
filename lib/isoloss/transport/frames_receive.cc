// The receiving half of FrameExchange: what to do with each parcel.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "isoloss/transport/frames.h"

namespace isoloss::transport {
namespace {

std::string TextOf(const Parcel& parcel) {
  const auto text = parcel.span().subspan(kHeaderBytes);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

}  // namespace

void FrameExchange::Progress() {
  while (link_.Poll(incoming_)) {
    Parcel& partial = At(incoming_.peer).partial;
    if (!incoming_.more && partial.bytes == 0) {
      Handle(incoming_);
      continue;
    }
    Append(incoming_, partial);
    if (incoming_.more) continue;
    Handle(partial);
    partial.bytes = 0;
  }
}

void FrameExchange::Append(const Parcel& part, Parcel& whole) {
  const size_t bytes = whole.bytes + part.bytes;
  if (bytes > whole.data.size()) {
    Matrix<std::byte> larger;
    larger.ResizeUninitialized(1, 2 * bytes);
    if (whole.bytes > 0) {
      std::memcpy(larger.data(), whole.data.data(), whole.bytes);
    }
    whole.data = std::move(larger);
  }
  std::memcpy(whole.data.data() + whole.bytes, part.data.data(), part.bytes);
  whole.bytes = bytes;
  whole.peer = part.peer;
}

void FrameExchange::Handle(Parcel& parcel) {
  const int peer = parcel.peer;
  if (parcel.bytes < kHeaderBytes) return HandleDamaged(peer);
  const MessageHeader header = HeaderOf(parcel.span());
  if (!IsIntact(header)) return HandleDamaged(peer);
  if (header.version != kMessageVersion) {
    Refuse(peer, fmt::format("message format is version {}, but this program "
                             "has version {}. Start the same program "
                             "everywhere.",
                             header.version, kMessageVersion));
  }
  if (header.run_id > run_id_) {
    link_.held.push_back(std::exchange(parcel, Parcel{}));
    return;
  }
  if (header.run_id < run_id_) return;  // the end of a run that is over
  if (header.source != peer || header.destination != link_.index()) {
    Refuse(peer, fmt::format("it goes from {} to {}", header.source,
                             header.destination));
  }
  switch (header.magic) {
    case Magic::kFrame:
      return HandleFrame(parcel, header);
    case Magic::kNack:
      return ResendTo(peer, header.sequence);
    case Magic::kWaiting:
      At(peer).waits_for = TextOf(parcel);
      return;
    case Magic::kGoodbye:
      At(peer).goodbye = true;
      return;
    case Magic::kAbort:
      told_by_peer_ = true;
      failure_.Set(TextOf(parcel));
      return;
    case Magic::kMessage:
      break;
  }
  Refuse(peer, fmt::format("magic is 0x{:08X}, which no frame has",
                           static_cast<uint32_t>(header.magic)));
}

void FrameExchange::HandleFrame(Parcel& parcel, const MessageHeader& header) {
  const int peer = parcel.peer;
  if (parcel.bytes != kHeaderBytes + header.payload_bytes ||
      header.rows > header.payload_bytes ||
      Crc32c(parcel.span().subspan(kHeaderBytes, header.rows)) !=
          header.payload_crc) {
    return HandleDamaged(peer);
  }
  const uint64_t now = operation_.sequence;
  if (header.sequence < now || header.sequence > now + 1) {
    Refuse(peer, fmt::format("it is of {} (operation {}), a {} frame: you are "
                             "in operation {}",
                             Where(header), header.sequence,
                             header.sequence < now ? "stale" : "future", now));
  }
  if (header.sequence == now) CheckOperation(peer, header);
  At(peer).waits_for.clear();
  ReceivedFrame& first = At(peer).received[header.sequence % 2];
  ReceivedFrame& second = At(peer).second;
  if (!first.here) {
    first.here = true;
    resends_ += first.asked_again ? 1 : 0;
    std::swap(first.parcel, parcel);
  } else if (header.sequence == now && second.asked_again && !second.here) {
    second.here = true;
    std::swap(second.parcel, parcel);
  } else {
    Refuse(peer, fmt::format("it came twice ({}, operation {})", Where(header),
                             header.sequence));
  }
}

/// The peer takes part in the operation that this process is in.
void FrameExchange::CheckOperation(int peer,
                                   const MessageHeader& header) const {
  const MessageHeader& mine = operation_;
  if (header.kind == mine.kind && header.layer == mine.layer &&
      header.hop == mine.hop && header.step == mine.step) {
    return;
  }
  ThrowError(ErrorKind::kTransport,
             "process {} is in {} (operation {}), you, process {}, are in {}. "
             "All processes must call the same operations in the same order.",
             peer, Where(header), header.sequence, link_.index(), Where(mine));
}

/// A frame whose own header or directory is damaged: it must be the next one
/// due, since parcels keep their order.
void FrameExchange::HandleDamaged(int peer) {
  const uint64_t now = operation_.sequence;
  ReceivedFrame& second = At(peer).second;
  if (second.asked_again && !second.here) Refuse(peer, "damaged twice");
  const uint64_t due = At(peer).received[now % 2].here ? now + 1 : now;
  ReceivedFrame& frame = At(peer).received[due % 2];
  if (std::exchange(frame.asked_again, true)) Refuse(peer, "damaged twice");
  ++crc_failures_;
  PostControl(peer, Magic::kNack, due, "");
}

void FrameExchange::ResendTo(int peer, uint64_t sequence) {
  SentFrame& frame = At(peer).sent[sequence % 2];
  // Not sent yet: what the peer could not read was something else.
  if (frame.sequence != sequence) return;
  PostWhole(peer, {frame.bytes.data(), frame.bytes.size()}, &frame.outstanding);
}

}  // namespace isoloss::transport
