// Event files byte by byte, written here once more: not by what is tested.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace isoloss::test_support {

inline std::string Little(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

inline std::string Varint(uint64_t value) {
  std::string text;
  do {
    const uint64_t more = value > 127 ? 128 : 0;
    text += static_cast<char>((value & 127) | more);
    value >>= 7;
  } while (value > 0);
  return text;
}

inline std::string Key(uint64_t field, uint64_t type) {
  return Varint(field * 8 + type);
}
inline std::string Whole(uint64_t field, uint64_t value) {
  return Key(field, 0) + Varint(value);
}
inline std::string Text(uint64_t field, std::string_view text) {
  return Key(field, 2) + Varint(text.size()) + std::string(text);
}
inline std::string Fp32Bytes(float value) {
  return Little(std::bit_cast<uint32_t>(value), 4);
}
inline std::string Fp64Bytes(double value) {
  return Little(std::bit_cast<uint64_t>(value), 8);
}
inline std::string Fp32(uint64_t field, float value) {
  return Key(field, 5) + Fp32Bytes(value);
}
inline std::string Fp64(uint64_t field, double value) {
  return Key(field, 1) + Fp64Bytes(value);
}

/// CRC-32C a bit at a time, and masked.
inline uint32_t PlainMaskedCrc(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

inline std::string Record(std::string_view payload) {
  const std::string length = Little(payload.size(), 8);
  return length + Little(PlainMaskedCrc(length), 4) + std::string(payload) +
         Little(PlainMaskedCrc(payload), 4);
}

/// Event with one Summary.Value.
inline std::string EventOf(int64_t step, std::string_view value,
                           double wall_time = 1.5) {
  std::string event = Fp64(1, wall_time);
  if (step != 0) event += Whole(2, static_cast<uint64_t>(step));
  return Record(event + Text(5, Text(1, value)));
}

inline std::string VersionRecord() {
  return Record(Fp64(1, 1.25) + Text(3, "brain.Event:2"));
}

/// As torch writes a scalar.
inline std::string SimpleEvent(int64_t step, std::string_view tag,
                               float value) {
  return EventOf(step, Text(1, tag) + Fp32(2, value));
}

/// Metadata that name the plugin.
inline std::string Plugin(std::string_view name) {
  return Text(9, Text(1, Text(1, name)));
}

/// As TensorFlow 2 writes one; `tensor` is a TensorProto.
inline std::string TensorEvent(int64_t step, std::string_view tag,
                               std::string_view tensor,
                               std::string_view plugin = "scalars") {
  return EventOf(step, Text(1, tag) + Text(8, tensor) + Plugin(plugin));
}

}  // namespace isoloss::test_support
