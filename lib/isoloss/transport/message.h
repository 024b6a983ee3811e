// Defines the header that every message carries, and how a receiver checks it.
//
// A message is its header and then its payload. Both ends run the same program
// on the same kind of machine (the build refuses any other), so the header is
// copied as it lies in memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "isoloss/base/crc32c.h"
#include "isoloss/transport/operation.h"

namespace isoloss::transport {

constexpr uint16_t kMessageVersion = 1;

/// Says what the bytes after a header are.
enum class Magic : uint32_t {
  kMessage = 0x4D4F5349,  ///< "ISOM": one rank's message to another
  kFrame = 0x464F5349,    ///< "ISOF": all messages of a process to another
  kWaiting = 0x574F5349,  ///< "ISOW": has waited long; the payload: for whom
  kAbort = 0x414F5349,    ///< "ISOA": the job is over; the payload says why
  kGoodbye = 0x474F5349,  ///< "ISOG": nothing more will come
};

struct MessageHeader {
  Magic magic = Magic::kMessage;
  uint16_t version = kMessageVersion;
  OpKind kind = OpKind::kBarrier;
  uint64_t run_id = 0;
  int64_t step = 0;
  uint64_t sequence = 0;  ///< number of the operation in the run, from 1
  int16_t layer = -1;
  int16_t hop = 0;
  uint16_t source = 0;  ///< a rank; of frames a process
  uint16_t destination = 0;
  uint64_t rows = 0;
  uint64_t payload_bytes = 0;
  uint32_t payload_crc = 0;
  uint32_t header_crc = 0;  ///< of the header with 0 here
};
constexpr size_t kHeaderBytes = 64;
static_assert(sizeof(MessageHeader) == kHeaderBytes);
static_assert(std::is_trivially_copyable_v<MessageHeader>);
static_assert(std::has_unique_object_representations_v<MessageHeader>);
static_assert(std::endian::native == std::endian::little);

/// Returns the bytes that a message occupies if messages follow each other, so
/// that each begins at a multiple of 64.
constexpr size_t PaddedBytes(size_t payload_bytes) {
  return kHeaderBytes + (payload_bytes + 63) / 64 * 64;
}

/// Fills in the two CRCs. payload_crc covers `checked`: the whole payload of a
/// message, but the first `rows` bytes of a frame, whose messages have their
/// own CRCs.
void Seal(MessageHeader& header, std::span<const std::byte> checked);

/// Says how the header at the start of `message` was damaged on the wire:
/// "damaged on the way: header CRC32C is 0x…, …". Returns "" if it is as its
/// sender sealed it.
std::string HeaderDamage(std::span<const std::byte> message);

/// Says how the first `checked` bytes of the payload were damaged, after a
/// header that is intact. The message is cut short if it lacks some of them.
/// Returns "" if they are intact.
std::string PayloadDamage(std::span<const std::byte> message, size_t checked);

/// Says why a delivered message, header and payload, is not the one that is
/// due: it is damaged, or it is intact but another message. The CRCs of `due`
/// do not matter. Returns "" if nothing is wrong.
std::string Problem(std::span<const std::byte> message,
                    const MessageHeader& due);

/// Returns the header at the start of `message`, which has at least 64 bytes.
MessageHeader HeaderOf(std::span<const std::byte> message);

/// Returns a text such as "step 12, dispatch, MoE layer 2".
std::string Where(const MessageHeader& header);

}  // namespace isoloss::transport
