#include "isoloss/runlog/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/crc32c.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/runlog/rows.h"

namespace isoloss::runlog {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little);

constexpr size_t kCrcBytes = sizeof(uint32_t);
constexpr size_t kHeadBytes =
    kJournalMagic.size() + sizeof(uint32_t) + kCrcBytes;

enum Kind : uint32_t { kProvenance = 1, kRows = 2 };

struct RecordHead {
  uint32_t payload_bytes;
  uint32_t kind;
  uint64_t number;
};
static_assert(sizeof(RecordHead) == 16);

template <typename T>
T Load(std::span<const std::byte> from) {
  T value;
  std::memcpy(&value, from.data(), sizeof(T));
  return value;
}

template <typename T>
void Store(const T& value, std::byte* to) {
  std::memcpy(to, &value, sizeof(T));
}

std::vector<std::byte> MakeHead() {
  std::vector<std::byte> head(kHeadBytes);
  std::memcpy(head.data(), kJournalMagic.data(), kJournalMagic.size());
  Store(static_cast<uint32_t>(kSchemaVersion),
        head.data() + kJournalMagic.size());
  Store(Crc32c(std::span(head).first(kHeadBytes - kCrcBytes)),
        head.data() + kHeadBytes - kCrcBytes);
  return head;
}

bool HasHead(std::span<const std::byte> bytes) {
  return bytes.size() >= kHeadBytes &&
         std::memcmp(bytes.data(), kJournalMagic.data(),
                     kJournalMagic.size()) == 0 &&
         Crc32c(bytes.first(kHeadBytes - kCrcBytes)) ==
             Load<uint32_t>(bytes.subspan(kHeadBytes - kCrcBytes));
}

void CheckHead(std::span<const std::byte> bytes, const std::string& name) {
  if (!HasHead(bytes)) {
    ThrowError(ErrorKind::kFormat,
               "{}: the first {} bytes are not the head of a journal. The "
               "file is damaged or no journal; start the run again with "
               "--restart.",
               name, kHeadBytes);
  }
  const auto version = Load<uint32_t>(bytes.subspan(kJournalMagic.size()));
  if (version != kSchemaVersion) {
    ThrowError(ErrorKind::kFormat,
               "{}: the journal has schema version {}, but this program goes "
               "on with version {} only. Resume it with the version of isoloss "
               "that began it.",
               name, version, kSchemaVersion);
  }
}

/// Length of the whole record at the front of `bytes`; 0 if it is cut off,
/// damaged or not the one with `number`, and `note` says which.
size_t WholeRecord(std::span<const std::byte> bytes, uint64_t number,
                   std::string& note) {
  if (bytes.size() < sizeof(RecordHead) + kCrcBytes) {
    note = "is cut off";
    return 0;
  }
  const auto head = Load<RecordHead>(bytes);
  const size_t checked = sizeof(RecordHead) + size_t{head.payload_bytes};
  if (bytes.size() < checked + kCrcBytes) {
    note = fmt::format("is cut off: {} of {} bytes are there", bytes.size(),
                       checked + kCrcBytes);
    return 0;
  }
  if (Crc32c(bytes.first(checked)) != Load<uint32_t>(bytes.subspan(checked))) {
    note = "is damaged: its CRC32C is wrong";
    return 0;
  }
  if (head.number != number) {
    note = fmt::format("has number {}: another program wrote to the file",
                       head.number);
    return 0;
  }
  return checked + kCrcBytes;
}

void Apply(uint32_t kind, std::span<const std::byte> payload, RunLog& log) {
  switch (kind) {
    case kProvenance:
      log.provenance = DecodeProvenance(payload);
      return;
    case kRows:
      AppendRows(DecodeRows(payload), log);
      return;
    default:
      ThrowError(ErrorKind::kFormat,
                 "kind {} is unknown, but a record is of kind 1 or 2. Start "
                 "the run again with --restart.",
                 kind);
  }
}

std::vector<std::byte> ReadBytes(const fs::path& path) {
  const Descriptor file = OpenFile(path);
  std::vector<std::byte> bytes(FileSize(file, path));
  ReadAll(file, 0, bytes, path);
  return bytes;
}

template <typename Call>
auto Uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

JournalWriter::JournalWriter(fs::path path, uint64_t size, uint64_t records)
    : path_(std::move(path)), size_(size), records_(records) {
  // At the end, wherever another process has put it: two writers can mix
  // records, which the numbers tell, but not overwrite one.
  fd_ = Uninterrupted([this] {
    return ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  });
  if (fd_ < 0) Throw("open", errno);
}

JournalWriter::JournalWriter(JournalWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      records_(other.records_),
      torn_(other.torn_) {}

JournalWriter::~JournalWriter() {
  if (fd_ >= 0) ::close(fd_);
}

JournalWriter JournalWriter::Create(const fs::path& path) {
  WriteFileAtomically(path, MakeHead());
  return {path, kHeadBytes, 0};
}

JournalWriter JournalWriter::Continue(const fs::path& path) {
  return Continue(path, ReadJournal(path));
}

JournalWriter JournalWriter::Continue(const fs::path& path,
                                      const JournalContent& content) {
  JournalWriter writer(path, content.valid_bytes, content.records);
  writer.torn_ = content.torn_bytes > 0;
  writer.CutOff();
  return writer;
}

void JournalWriter::Append(const Provenance& provenance) {
  Append(kProvenance, EncodeProvenance(provenance));
}

void JournalWriter::Append(const RunLog& rows) {
  Append(kRows, EncodeRows(rows));
}

void JournalWriter::Append(uint32_t kind, std::span<const std::byte> payload) {
  if (payload.size() > std::numeric_limits<uint32_t>::max()) {
    ThrowError(ErrorKind::kShape,
               "{}: a record has {} bytes, but at most 2^32 - 1. Record fewer "
               "tensors, or no routing.",
               path_.string(), payload.size());
  }
  const RecordHead head = {static_cast<uint32_t>(payload.size()), kind,
                           records_};
  const size_t checked = sizeof(head) + payload.size();
  std::vector<std::byte> record(checked + kCrcBytes);
  Store(head, record.data());
  std::copy(payload.begin(), payload.end(), record.begin() + sizeof(head));
  Store(Crc32c(std::span(record).first(checked)), record.data() + checked);

  // Behind a torn record a whole one would be lost.
  if (torn_) CutOff();
  Write(record);
  size_ += record.size();
  ++records_;
}

void JournalWriter::Write(std::span<const std::byte> record) {
  while (!record.empty()) {
    const ssize_t count = Uninterrupted(
        [&] { return ::write(fd_, record.data(), record.size()); });
    if (count < 0) {
      const int error = errno;
      if (torn_) {
        torn_ = ::ftruncate(fd_, static_cast<off_t>(size_)) != 0;
      }
      Throw("append to it", error);
    }
    torn_ = true;
    record = record.subspan(static_cast<size_t>(count));
  }
  torn_ = false;
}

void JournalWriter::CutOff() {
  if (!torn_) return;
  if (Uninterrupted([this] {
        return ::ftruncate(fd_, static_cast<off_t>(size_));
      }) != 0) {
    Throw("cut off what is torn in it", errno);
  }
  torn_ = false;
}

void JournalWriter::Sync() {
  if (Uninterrupted([this] { return ::fsync(fd_); }) != 0) Throw("sync", errno);
}

void JournalWriter::Rename(const fs::path& path) {
  if (::rename(path_.c_str(), path.c_str()) != 0) {
    Throw("rename it", errno);
  }
  path_ = path;
  SyncFolderOf(path_);
}

void JournalWriter::Throw(const char* action, int error) const {
  const char* remedy = "check the path and its permissions";
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    remedy = "make room";
  } else if (error == EIO) {
    remedy = "check the disk, which may be failing,";
  }
  ThrowError(ErrorKind::kIo,
             "{}: can't {}: {}. All records before it are kept; {} and resume "
             "the run with --resume.",
             path_.string(), action, std::generic_category().message(error),
             remedy);
}

JournalContent ParseJournal(std::span<const std::byte> bytes,
                            const std::string& name) {
  CheckHead(bytes, name);
  JournalContent content;
  size_t begin = kHeadBytes;
  std::string problem;
  while (begin < bytes.size()) {
    const size_t length =
        WholeRecord(bytes.subspan(begin), content.records, problem);
    if (length == 0) break;
    const auto record = bytes.subspan(begin, length);
    const auto head = Load<RecordHead>(record);
    try {
      Apply(head.kind, record.subspan(sizeof(head), head.payload_bytes),
            content.log);
    } catch (const Error& error) {
      ThrowError(ErrorKind::kFormat, "{}: record {}: {}", name, content.records,
                 error.what());
    }
    ++content.records;
    begin += length;
  }
  content.valid_bytes = begin;
  content.torn_bytes = bytes.size() - begin;
  if (content.torn_bytes > 0) {
    content.note = fmt::format(
        "{}: record {} at byte {} {}; the last {} bytes are left out, {} whole "
        "records are before them.",
        name, content.records, begin, problem, content.torn_bytes,
        content.records);
  }
  return content;
}

JournalContent ReadJournal(const fs::path& path) {
  return ParseJournal(ReadBytes(path), path.string());
}

bool HasJournalHead(const fs::path& path) {
  const Descriptor file = OpenFile(path);
  std::vector<std::byte> bytes(
      std::min<uint64_t>(FileSize(file, path), kHeadBytes));
  ReadAll(file, 0, bytes, path);
  return HasHead(bytes);
}

}  // namespace isoloss::runlog
