// Implements the receiving half of FrameExchange, which handles each parcel.
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
  const std::string damage = HeaderDamage(parcel.span());
  if (!damage.empty()) Refuse(peer, damage);
  const MessageHeader header = HeaderOf(parcel.span());
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
  const std::string bad = PayloadDamage(parcel.span(), header.rows);
  if (!bad.empty()) Refuse(peer, bad);
  switch (header.magic) {
    case Magic::kFrame:
      return HandleFrame(parcel, header);
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
  const uint64_t now = operation_.sequence;
  if (header.sequence < now || header.sequence > now + 1) {
    Refuse(peer, fmt::format("it is of {} (operation {}), a {} frame: you are "
                             "in operation {}",
                             Where(header), header.sequence,
                             header.sequence < now ? "stale" : "future", now));
  }
  if (header.sequence == now) CheckOperation(peer, header);
  At(peer).waits_for.clear();
  ReceivedFrame& frame = At(peer).received[header.sequence % 2];
  if (std::exchange(frame.here, true)) {
    Refuse(peer, fmt::format("it came twice ({}, operation {})", Where(header),
                             header.sequence));
  }
  std::swap(frame.parcel, parcel);
}

/// Refuses a frame of a peer that is in another operation than this process.
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

}  // namespace isoloss::transport
