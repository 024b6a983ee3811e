// Reads protobuf's wire format, as far as event files need it.
// Source   protobuf.dev/programming-guides/encoding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace isoloss::foreign {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kFixed32 = 5,
};

/// Goes through the fields of one message, in the order in which they are
/// written: `while (fields.Next()) ...`. The message may be any bytes.
class ProtobufFields {
 public:
  explicit ProtobufFields(std::string_view message) : rest_(message) {}

  /// Returns false after the last field, or if the bytes are no field.
  bool Next();

  uint64_t number() const { return number_; }
  WireType type() const { return type_; }
  bool Is(uint64_t number, WireType type) const {
    return number_ == number && type_ == type;
  }
  uint64_t value() const { return value_; }          ///< of any type but kBytes
  std::string_view bytes() const { return bytes_; }  ///< of kBytes
  double AsDouble() const;                           ///< of kFixed64
  float AsFloat() const;                             ///< of kFixed32

  /// Returns, after the last Next(), whether the last field is whole.
  bool sound() const { return sound_ && rest_.empty(); }

 private:
  bool TakeVarint(uint64_t& value);
  bool TakeFixed(size_t bytes);

  std::string_view rest_;
  uint64_t number_ = 0;
  WireType type_ = WireType::kVarint;
  uint64_t value_ = 0;
  std::string_view bytes_;
  bool sound_ = true;
};

/// Reads a little-endian number from the first `bytes` (at most 8) of `text`.
uint64_t LittleEndian(std::string_view text, size_t bytes);

/// Returns CRC-32C as event files hold it, masked so that a checksum of
/// checksums is no special case. Source   tensorflow/core/lib/hash/crc32c.h.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace isoloss::foreign
