#include "isoloss/foreign/protobuf.h"

#include <bit>
#include <cstring>
#include <span>

#include "isoloss/base/crc32c.h"

namespace isoloss::foreign {

static_assert(std::endian::native == std::endian::little);

uint64_t LittleEndian(std::string_view text, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, text.data(), bytes);
  return value;
}

bool ProtobufFields::TakeVarint(uint64_t& value) {
  value = 0;
  for (size_t i = 0; i < 10 && i < rest_.size(); ++i) {
    const auto byte = static_cast<unsigned char>(rest_[i]);
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

bool ProtobufFields::TakeFixed(size_t bytes) {
  if (rest_.size() < bytes) return false;
  value_ = LittleEndian(rest_, bytes);
  rest_.remove_prefix(bytes);
  return true;
}

bool ProtobufFields::Next() {
  if (rest_.empty() || !sound_) return false;
  sound_ = false;
  uint64_t key = 0;
  if (!TakeVarint(key) || key >> 3 == 0) return false;
  number_ = key >> 3;
  type_ = static_cast<WireType>(key & 7);
  switch (type_) {
    case WireType::kVarint:
      sound_ = TakeVarint(value_);
      break;
    case WireType::kFixed64:
      sound_ = TakeFixed(8);
      break;
    case WireType::kFixed32:
      sound_ = TakeFixed(4);
      break;
    case WireType::kBytes:
      if (TakeVarint(value_) && value_ <= rest_.size()) {
        bytes_ = rest_.substr(0, value_);
        rest_.remove_prefix(value_);
        sound_ = true;
      }
      break;
  }
  return sound_;
}

double ProtobufFields::AsDouble() const {
  return std::bit_cast<double>(value_);
}

float ProtobufFields::AsFloat() const {
  return std::bit_cast<float>(static_cast<uint32_t>(value_));
}

uint32_t MaskedCrc32c(std::string_view bytes) {
  constexpr uint32_t kMask = 0xA282EAD8;
  const uint32_t crc = Crc32c(std::as_bytes(std::span(bytes)));
  return (crc >> 15 | crc << 17) + kMask;
}

}  // namespace isoloss::foreign
