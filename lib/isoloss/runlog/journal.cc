#include "isoloss/runlog/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/crc32c.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/hdf5/read_limit.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little);

constexpr size_t kCrcBytes = sizeof(uint32_t);
constexpr size_t kHeadBytes =
    kJournalMagic.size() + sizeof(uint32_t) + kCrcBytes;

/// No run's journal comes near this limit, since its log must be readable, too.
constexpr uint64_t kMaxBytes = uint64_t{8} << 30;

enum RecordKind : uint32_t { kProvenance = 1, kRows = 2 };

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
  Store(kJournalVersion, head.data() + kJournalMagic.size());
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
  if (version != kJournalVersion) {
    ThrowError(ErrorKind::kFormat,
               "{}: the journal has version {}, but this program goes on with "
               "version {} only. Resume it with the version of isoloss that "
               "began it.",
               name, version, kJournalVersion);
  }
}

/// Reads a journal in memory or on disk, of which one piece is held at a time.
struct Source {
  uint64_t size;
  /// Returns the bytes [offset, offset + count), which are valid until the next
  /// call.
  std::function<std::span<const std::byte>(uint64_t offset, uint64_t count)>
      fetch;
};

/// Returns the whole record at `begin`. Returns nothing if the record is cut
/// off, damaged or without `number`, and `note` says which.
/// Errors   FormatError if no record of ours is as long as it says.
std::span<const std::byte> WholeRecord(const Source& source, uint64_t begin,
                                       uint64_t number, std::string& note) {
  const uint64_t left = source.size - begin;
  if (left < sizeof(RecordHead) + kCrcBytes) {
    note = "is cut off";
    return {};
  }
  const auto head = Load<RecordHead>(source.fetch(begin, sizeof(RecordHead)));
  const uint64_t checked = sizeof(RecordHead) + uint64_t{head.payload_bytes};
  if (left < checked + kCrcBytes) {
    note = fmt::format("is cut off: {} of {} bytes are there", left,
                       checked + kCrcBytes);
    return {};
  }
  if (checked > hdf5::ReadLimit()) {
    ThrowError(ErrorKind::kFormat,
               "has {} bytes, but a record has at most {}, or as many MiB as "
               "ISOLOSS_MEMORY_MIB says. Set it, or start the run again with "
               "--restart.",
               checked, hdf5::ReadLimit());
  }
  const auto record = source.fetch(begin, checked + kCrcBytes);
  if (Crc32c(record.first(checked)) !=
      Load<uint32_t>(record.subspan(checked))) {
    note = "is damaged: its CRC32C is wrong";
    return {};
  }
  if (head.number != number) {
    note = fmt::format("has number {}: another program wrote to the file",
                       head.number);
    return {};
  }
  return record;
}

/// Throws if a step is missing: a run resumes after the last one.
void CheckNoGap(const RunLog& rows, const RunLog& log) {
  const std::vector<int64_t>& before = log.steps.step;
  int64_t last = before.empty() ? 0 : before.back();
  for (const int64_t step : rows.steps.step) {
    if (step != last + 1) {
      ThrowError(ErrorKind::kFormat,
                 "step {} comes behind step {}, but a journal holds each step "
                 "once, in order, from 1. Start the run again with --restart.",
                 step, last);
    }
    last = step;
  }
}

/// Requires that each axis with rows has names for its places, as HDF5 files
/// have.
void CheckLabels(const RunLog& log) {
  const View view(log);
  for (const Group& group : RowGroups()) {
    if (!group.HasSteps() || view.Steps(group)->empty()) continue;
    for (const Column& column : group.columns) {
      if (column.role != Role::kLabels) continue;
      const Axis& axis = column.axes.front();
      const size_t names = view.Count(column);
      const int64_t size = view.Size(axis);
      if (size > 0 && names == static_cast<size_t>(size)) continue;
      ThrowError(ErrorKind::kFormat,
                 "{} has {} names of {} {}, but each has one, from the "
                 "first row on. Start the run again with --restart.",
                 group.PathOf(column), names, size, axis.name);
    }
  }
}

/// Texts are counted over all records, since one record has few.
void CheckEvents(const std::vector<Event>& events, size_t& text_bytes) {
  for (const Event& event : events) {
    text_bytes += event.kind.size() + event.text.size();
    if (text_bytes > hdf5::kMaxTextBytes) {
      ThrowError(ErrorKind::kFormat,
                 "all texts of events have more than {} bytes, but a journal "
                 "has fewer. Start the run again with --restart.",
                 hdf5::kMaxTextBytes);
    }
    if (IsCalendarTime(event.unix_seconds)) continue;
    ThrowError(ErrorKind::kFormat,
               "an event is at {} s, but a time is from 0 to the end of year "
               "9999. Start the run again with --restart.",
               event.unix_seconds);
  }
}

void Apply(uint32_t kind, std::span<const std::byte> payload, RunLog& log,
           size_t& text_bytes) {
  switch (kind) {
    case kProvenance:
      log.provenance = DecodeProvenance(payload);
      return;
    case kRows: {
      const RunLog rows = DecodeRows(payload);
      CheckNoGap(rows, log);
      CheckEvents(rows.events, text_bytes);
      AppendRows(rows, log);
      CheckLabels(log);
      return;
    }
    default:
      ThrowError(ErrorKind::kFormat,
                 "kind {} is unknown, but a record is of kind 1 or 2. Start "
                 "the run again with --restart.",
                 kind);
  }
}

JournalContent Parse(const Source& source, const std::string& name) {
  CheckHead(source.fetch(0, std::min<uint64_t>(source.size, kHeadBytes)), name);
  JournalContent content;
  uint64_t begin = kHeadBytes;
  size_t text_bytes = 0;
  std::string problem;
  while (begin < source.size) {
    try {
      const auto record = WholeRecord(source, begin, content.records, problem);
      if (record.empty()) break;
      const auto head = Load<RecordHead>(record);
      Apply(head.kind, record.subspan(sizeof(head), head.payload_bytes),
            content.log, text_bytes);
      begin += record.size();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kIo) throw;
      ThrowError(ErrorKind::kFormat, "{}: record {}: {}", name, content.records,
                 error.what());
    }
    ++content.records;
  }
  content.valid_bytes = begin;
  content.torn_bytes = source.size - begin;
  if (content.torn_bytes > 0) {
    content.note = fmt::format(
        "{}: record {} at byte {} {}; the last {} bytes are left out, {} whole "
        "records are before them.",
        name, content.records, begin, problem, content.torn_bytes,
        content.records);
  }
  return content;
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
  // Records are appended at the end of the file, even if another process has
  // moved the end. Two writers can mix records, which the numbers show, but not
  // overwrite one.
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

  // A reader would lose a whole record that follows a torn one.
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

bool JournalWriter::IsInPlace() const { return IsStillAt(fd_, path_); }

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
  const auto fetch = [bytes](uint64_t offset, uint64_t count) {
    return bytes.subspan(offset, count);
  };
  return Parse({bytes.size(), fetch}, name);
}

JournalContent ReadJournal(const fs::path& path) {
  const Descriptor file = OpenFile(path);
  const uint64_t size = FileSize(file, path);
  if (size > kMaxBytes) {
    ThrowError(ErrorKind::kFormat,
               "{}: has {} bytes, but a journal has at most {}. Start the run "
               "again with --restart.",
               path.string(), size, kMaxBytes);
  }
  std::vector<std::byte> piece;
  const auto fetch = [&](uint64_t offset, uint64_t count) {
    piece.resize(count);
    ReadAll(file, offset, piece, path);
    return std::span<const std::byte>(piece);
  };
  JournalContent content = Parse({size, fetch}, path.string());
  content.log.charge =
      hdf5::Charge(path.string(), size, ValueBytesOf(content.log));
  return content;
}

bool HasJournalHead(const fs::path& path) {
  const Descriptor file = OpenFile(path);
  std::vector<std::byte> bytes(
      std::min<uint64_t>(FileSize(file, path), kHeadBytes));
  ReadAll(file, 0, bytes, path);
  return HasHead(bytes);
}

}  // namespace isoloss::runlog
