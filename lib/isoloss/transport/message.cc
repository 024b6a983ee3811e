#include "isoloss/transport/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "isoloss/base/error.h"

namespace isoloss::transport {
namespace {

constexpr size_t kCrcBytes = sizeof(uint32_t);
/// A header and the one that is due must be equal in all but the CRCs.
constexpr size_t kComparedBytes = kHeaderBytes - 2 * kCrcBytes;

/// Computes the CRC over the whole header with 0 in the place of its own CRC:
/// ISA-L takes twice as long for 60 bytes as for 64.
uint32_t HeaderCrc(MessageHeader header) {
  header.header_crc = 0;
  return Crc32c(std::as_bytes(std::span(&header, 1)));
}

std::string Name(Magic magic) {
  const auto value = static_cast<uint32_t>(magic);
  return fmt::format("0x{:08X}", value);
}

std::string Damaged(const std::string& how) {
  return fmt::format(
      "damaged on the way: {}. Start the run again with --resume; if it "
      "happens "
      "again, look for a faulty network or memory.",
      how);
}

/// Says what is wrong with an intact header that is not the one due.
std::string ExplainFields(const MessageHeader& got, const MessageHeader& due) {
  if (got.magic != due.magic) {
    return fmt::format("magic is {}, but {} is due", Name(got.magic),
                       Name(due.magic));
  }
  if (got.version != due.version) {
    return fmt::format(
        "message format is version {}, but this program has version {}. Start "
        "the same program on all ranks.",
        got.version, due.version);
  }
  if (got.run_id != due.run_id) {
    return fmt::format("it belongs to run {:016x}, but this is run {:016x}",
                       got.run_id, due.run_id);
  }
  if (got.sequence != due.sequence || got.kind != due.kind ||
      got.layer != due.layer || got.hop != due.hop || got.step != due.step) {
    const char* age = got.sequence < due.sequence ? " (a stale message)" : "";
    return fmt::format(
        "{} {} is in {} (operation {}), you are in {} (operation {}){}",
        due.magic == Magic::kMessage ? "rank" : "process", got.source,
        Where(got), got.sequence, Where(due), due.sequence, age);
  }
  if (got.source != due.source || got.destination != due.destination) {
    return fmt::format("it goes from {} to {}, but that from {} to {} is due",
                       got.source, got.destination, due.source,
                       due.destination);
  }
  return fmt::format(
      "it has {} rows in {} bytes, but {} rows in {} bytes are expected",
      got.rows, got.payload_bytes, due.rows, due.payload_bytes);
}

}  // namespace

void Seal(MessageHeader& header, std::span<const std::byte> checked) {
  header.payload_crc = Crc32c(checked);
  header.header_crc = HeaderCrc(header);
}

std::string HeaderDamage(std::span<const std::byte> message) {
  if (message.size() < kHeaderBytes) {
    return Damaged(fmt::format("it has {} bytes, but a header alone has {}",
                               message.size(), kHeaderBytes));
  }
  const MessageHeader got = HeaderOf(message);
  const uint32_t crc = HeaderCrc(got);
  if (got.header_crc == crc) return "";
  return Damaged(
      fmt::format("header CRC32C is 0x{:08X}, but the header says 0x{:08X}",
                  crc, got.header_crc));
}

std::string PayloadDamage(std::span<const std::byte> message, size_t checked) {
  const MessageHeader got = HeaderOf(message);
  if (message.size() != kHeaderBytes + got.payload_bytes ||
      checked > got.payload_bytes) {
    return Damaged(fmt::format("{} bytes arrived, but its header announces {}",
                               message.size(),
                               kHeaderBytes + got.payload_bytes));
  }
  const uint32_t crc = Crc32c(message.subspan(kHeaderBytes, checked));
  if (crc == got.payload_crc) return "";
  return Damaged(
      fmt::format("payload CRC32C is 0x{:08X}, but the header says 0x{:08X}",
                  crc, got.payload_crc));
}

std::string Problem(std::span<const std::byte> message,
                    const MessageHeader& due) {
  if (std::string damage = HeaderDamage(message); !damage.empty()) {
    return damage;
  }
  const MessageHeader got = HeaderOf(message);
  if (std::memcmp(&got, &due, kComparedBytes) != 0) {
    return ExplainFields(got, due);
  }
  return PayloadDamage(message, got.payload_bytes);
}

MessageHeader HeaderOf(std::span<const std::byte> message) {
  ISOLOSS_ASSERT(message.size() >= kHeaderBytes);
  MessageHeader header;
  std::memcpy(&header, message.data(), kHeaderBytes);
  return header;
}

std::string Where(const MessageHeader& header) {
  return fmt::format("step {}, {}", header.step,
                     Describe({header.kind, header.layer, header.hop}));
}

}  // namespace isoloss::transport
