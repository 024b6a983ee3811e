// Keeps a live run in an append-only file. This file is the truth until the
// run's HDF5 file is whole: HDF5 alone does not survive every kill or full disk
// (docs/sources.md).
//
// Layout, little-endian: 8 bytes "isolossJ", uint32 schema version, uint32
// CRC32C of these 12 bytes; then records of
//   uint32 payload bytes | uint32 kind | uint64 number, from 0 | payload |
//   uint32 CRC32C of all before it
// each of them written by one write(). Kinds: 1 provenance, 2 rows (rows.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// A journal begins with these bytes.
inline constexpr std::string_view kJournalMagic = "isolossJ";
/// Head and records have this version. Rows follow the layout, so a column more
/// or less is another version.
inline constexpr uint32_t kJournalVersion = 7;

/// Holds the content of a journal.
struct JournalContent {
  RunLog log;  ///< the last provenance, and all rows in order
  uint64_t records = 0;
  uint64_t valid_bytes = 0;  ///< up to the end of the last whole record
  uint64_t torn_bytes = 0;   ///< behind it
  /// Says in a sentence which bytes were left out, and why; "" if none were.
  std::string note;
};

/// Appends to a journal.
class JournalWriter {
 public:
  /// Starts a new file; replaces one of that name.
  static JournalWriter Create(const std::filesystem::path& path);
  /// Continues after the last whole record; torn bytes at the end are cut off.
  static JournalWriter Continue(const std::filesystem::path& path);
  /// Does the same with a file whose content has been read.
  static JournalWriter Continue(const std::filesystem::path& path,
                                const JournalContent& content);

  JournalWriter(JournalWriter&& other) noexcept;
  JournalWriter& operator=(JournalWriter&&) = delete;
  ~JournalWriter();

  /// Each call appends one record. After it the record survives the death of
  /// the process; after Sync, the death of the machine. Errors   IoError with
  /// the system's reason (disk full, …). The written part
  ///          of the record is cut off again if that can be done; a reader
  ///          leaves it out in any case.
  void Append(const Provenance& provenance);
  /// Appends the rows of `rows`; its provenance is ignored.
  void Append(const RunLog& rows);
  void Sync();
  /// True if the file still has its name. Records appended to a file that was
  /// removed or replaced are lost with this process.
  bool IsInPlace() const;

  /// Renames the file in its folder, for good; replaces a file of that name.
  void Rename(const std::filesystem::path& path);

 private:
  JournalWriter(std::filesystem::path path, uint64_t size, uint64_t records);

  void Append(uint32_t kind, std::span<const std::byte> payload);
  void Write(std::span<const std::byte> record);
  void CutOff();
  [[noreturn]] void Throw(const char* action, int error) const;

  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_;      // up to the end of the last whole record
  uint64_t records_;   // whole ones
  bool torn_ = false;  // something stands behind them
};

/// Reads all whole records from the front. Reading ends at a record that is cut
/// off, whose CRC is wrong or whose number is not the next one. That record and
/// all bytes after it are left out, and the note says so.
/// Errors   IoError if the file can't be opened; FormatError if the head is not
///          a journal's or of another schema version, or if a record with a
///          right CRC is not what its kind promises.
JournalContent ReadJournal(const std::filesystem::path& path);

/// Does the same with a journal in memory; `name` is for messages.
JournalContent ParseJournal(std::span<const std::byte> bytes,
                            const std::string& name);

/// True if the file begins as a journal of any version does.
/// Errors   IoError if it can't be read.
bool HasJournalHead(const std::filesystem::path& path);

}  // namespace isoloss::runlog
