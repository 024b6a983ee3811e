#include "isoloss/foreign/record_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "isoloss/foreign/protobuf.h"

namespace isoloss::foreign {
namespace {

constexpr size_t kPieceHeadBytes = 7;  ///< of the file, and of each piece
constexpr size_t kBlockBytes = size_t{32} << 10;

constexpr std::array<uint32_t, 256> Crc32Table() {
  constexpr uint32_t kPolynomial = 0xEDB88320;  // of zlib
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1) != 0 ? crc >> 1 ^ kPolynomial : crc >> 1;
    }
    table[i] = crc;
  }
  return table;
}

uint32_t Crc32(std::string_view bytes) {
  static constexpr auto kTable = Crc32Table();
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ crc >> 8;
  }
  return ~crc;
}

}  // namespace

RecordLog::RecordLog(std::string_view file) : file_(file) {
  if (file.size() >= kPieceHeadBytes) {
    version_ = static_cast<uint8_t>(file[kPieceHeadBytes - 1]);
  }
  at_ = begin_ = std::min(kPieceHeadBytes, file.size());
}

bool RecordLog::TakePiece(Piece& type, std::string_view& data) {
  const size_t left = kBlockBytes - at_ % kBlockBytes;
  if (left < kPieceHeadBytes) at_ += left;
  if (at_ >= file_.size()) {
    end_ = End::kWhole;
    return false;
  }
  const std::string_view rest = file_.substr(at_);
  if (rest.size() < kPieceHeadBytes) {
    end_ = End::kCut;
    return false;
  }
  const size_t length = LittleEndian(rest.substr(4), 2);
  const size_t room = kBlockBytes - at_ % kBlockBytes;
  if (kPieceHeadBytes + length > room) {
    end_ = End::kDamaged;
    return false;
  }
  if (kPieceHeadBytes + length > rest.size()) {
    end_ = End::kCut;
    return false;
  }
  // The type stands right before the data, and the checksum is of both.
  const std::string_view checked = rest.substr(6, 1 + length);
  type = static_cast<Piece>(checked[0]);
  if (Crc32(checked) != LittleEndian(rest, 4) || type < Piece::kFull ||
      type > Piece::kLast) {
    end_ = End::kDamaged;
    return false;
  }
  data = checked.substr(1);
  at_ += kPieceHeadBytes + length;
  return true;
}

bool RecordLog::Next() {
  if (end_ != End::kNone) return false;
  begin_ = at_;
  joined_.clear();
  for (bool first = true;; first = false) {
    Piece type{};
    std::string_view data;
    if (!TakePiece(type, data)) {
      if (!first && end_ == End::kWhole) end_ = End::kCut;
      return false;
    }
    const bool begins = type == Piece::kFull || type == Piece::kFirst;
    if (begins != first) {
      end_ = End::kDamaged;
      return false;
    }
    if (type == Piece::kFull) {
      record_ = data;
      break;
    }
    joined_ += data;
    record_ = joined_;
    if (type == Piece::kLast) break;
  }
  ++count_;
  return true;
}

std::string RecordLog::note() const {
  const size_t lost = file_.size() - std::min(begin_, file_.size());
  if (end_ == End::kCut) {
    return fmt::format(
        "The file ends within record {}, as that of a live or killed run: the "
        "last {} of {} bytes were not read.",
        count_ + 1, lost, file_.size());
  }
  if (end_ == End::kDamaged) {
    return fmt::format(
        "Record {}, at byte {}, does not agree with its checksum: the file is "
        "damaged, and {} of {} bytes from there on were not read.",
        count_ + 1, begin_, lost, file_.size());
  }
  return "";
}

}  // namespace isoloss::foreign
