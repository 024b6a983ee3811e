// Reads files of records as LevelDB's log has them, which W&B and SwanLab use.
//
// A head of 7 bytes is followed by blocks of 32 KiB, the first one of which has
// the head. A record consists of pieces that lie within a block each: checksum
// (CRC-32 of the type and the data, 4 bytes), length (2), type (1), data, all
// little-endian. Zeros fill a block's last bytes if no piece fits there.
// Source   github.com/google/leveldb, doc/log_format.md, but with another
//          checksum: wandb, sdk/internal/datastore.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace isoloss::foreign {

/// Goes through the records of a file: `while (log.Next()) ...`. The bytes may
/// be any, but begin with a head.
class RecordLog {
 public:
  explicit RecordLog(std::string_view file);

  /// Returns the last byte of the head.
  uint8_t version() const { return version_; }

  /// Returns false after the last whole record that is sound.
  bool Next();
  /// Returns the record, which is valid until the next call.
  std::string_view record() const { return record_; }
  int64_t count() const { return count_; }

  /// Says, after Next() returned false, what was not read; "" if all was.
  std::string note() const;

 private:
  enum class Piece : uint8_t { kFull = 1, kFirst, kMiddle, kLast };
  enum class End : uint8_t { kNone, kWhole, kCut, kDamaged };

  bool TakePiece(Piece& type, std::string_view& data);

  std::string_view file_;
  uint8_t version_ = 0;
  size_t at_ = 0;       ///< the next piece
  size_t begin_ = 0;    ///< of the record that is read
  std::string joined_;  ///< from several pieces
  std::string_view record_;
  int64_t count_ = 0;
  End end_ = End::kNone;
};

}  // namespace isoloss::foreign
