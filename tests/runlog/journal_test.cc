#include "isoloss/runlog/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "isoloss/base/crc32c.h"
#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/runlog/rows.h"
#include "runlog/file_limit.h"
#include "runlog/log_file.h"
#include "runlog/sample_log.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog::journal_test {
namespace {

using isoloss::test_support::AsBytes;
using isoloss::test_support::Bytes;
using isoloss::test_support::FileLimit;
using isoloss::test_support::TemporaryFolder;
using isoloss::test_support::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Provenance OfArm(const std::string& arm) {
  Provenance provenance;
  provenance.arm = arm;
  return provenance;
}

/// Rows of one small step.
RunLog SmallRows(int64_t step) {
  RunLog rows;
  rows.steps.Append(
      {.step = step, .loss_nats = 1.0 / (1.0 + static_cast<double>(step))});
  rows.parameters.step = {step};
  rows.parameters.count = 1;
  if (step == 1) rows.parameters.names = {"w"};
  rows.parameters.grad_norm = {0.25 * static_cast<double>(step)};
  if (step == 2) rows.events = {{.unix_seconds = 1.5, .kind = "k", .text = ""}};
  return rows;
}

/// A journal of a provenance and three steps, and what it holds after each
/// record, as bytes: states[r] after r records, the last one at lengths[r].
struct SmallJournal {
  std::string bytes;
  std::vector<std::vector<std::byte>> states;
  std::vector<size_t> lengths;
};

SmallJournal MakeSmallJournal() {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  SmallJournal small;
  RunLog log;
  JournalWriter writer = JournalWriter::Create(path);
  const auto note = [&] {
    small.states.push_back(EncodeRows(log));
    small.lengths.push_back(Bytes(path).size());
  };
  note();
  writer.Append(OfArm("mx"));
  note();
  for (int64_t step = 1; step <= 3; ++step) {
    writer.Append(SmallRows(step));
    AppendRows(SmallRows(step), log);
    note();
  }
  small.bytes = Bytes(path);
  return small;
}

/// That `content` is the state after some whole records.
void ExpectPrefix(const JournalContent& content, const SmallJournal& small,
                  size_t size) {
  ASSERT_LT(content.records, small.states.size());
  EXPECT_EQ(EncodeRows(content.log), small.states[content.records]);
  EXPECT_EQ(content.log.provenance.arm, content.records > 0 ? "mx" : "");
  EXPECT_EQ(content.valid_bytes, small.lengths[content.records]);
  EXPECT_EQ(content.valid_bytes + content.torn_bytes, size);
  EXPECT_EQ(content.note.empty(), content.torn_bytes == 0);
}

TEST(Journal, HoldsWhatWasAppended) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  RunLog log = SampleLog();
  {
    JournalWriter writer = JournalWriter::Create(path);
    writer.Append(OfArm("first"));
    for (int64_t step = 1; step <= 5; ++step) writer.Append(SampleRows(step));
    writer.Append(log.provenance);
    writer.Sync();
  }

  const JournalContent content = ReadJournal(path);

  EXPECT_EQ(DumpLines(content.log), DumpLines(log));
  EXPECT_EQ(content.records, 7u);
  EXPECT_EQ(content.torn_bytes, 0u);
  EXPECT_EQ(content.note, "");
}

TEST(Journal, HasTheLayoutOfItsDocumentation) {
  const std::string bytes = MakeSmallJournal().bytes;

  EXPECT_EQ(bytes.substr(0, 12), std::string("isolossJ\7\0\0\0", 12));
  uint32_t crc = 0;
  std::memcpy(&crc, bytes.data() + 12, sizeof(crc));
  EXPECT_EQ(crc, Crc32c(AsBytes(bytes).first(12)));
  uint32_t payload = 0;
  std::memcpy(&payload, bytes.data() + 16, sizeof(payload));
  EXPECT_EQ(payload, EncodeProvenance(OfArm("mx")).size());
  EXPECT_EQ(bytes.substr(20, 12), std::string("\1\0\0\0\0\0\0\0\0\0\0\0", 12));
  std::memcpy(&crc, bytes.data() + 32 + payload, sizeof(crc));
  EXPECT_EQ(crc, Crc32c(AsBytes(bytes).subspan(16, 16 + payload)));
}

TEST(Journal, TornAtAnyByteGivesTheRecordsBefore) {
  const SmallJournal small = MakeSmallJournal();
  size_t records = 0;

  for (size_t size = small.lengths[0]; size <= small.bytes.size(); ++size) {
    while (records + 1 < small.lengths.size() &&
           small.lengths[records + 1] <= size) {
      ++records;
    }
    const JournalContent content =
        ParseJournal(AsBytes(small.bytes).first(size), "j");

    EXPECT_EQ(content.records, records) << size;
    ExpectPrefix(content, small, size);
  }
  for (size_t size = 0; size < small.lengths[0]; ++size) {
    EXPECT_THROW(ParseJournal(AsBytes(small.bytes).first(size), "j"), Error);
  }
}

TEST(Journal, WithAnyBitFlippedGivesTheRecordsBeforeIt) {
  const SmallJournal small = MakeSmallJournal();

  for (size_t place = 0; place < small.bytes.size(); ++place) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = small.bytes;
      bytes[place] = static_cast<char>(bytes[place] ^ (1 << bit));
      if (place < small.lengths[0]) {
        EXPECT_THROW(ParseJournal(AsBytes(bytes), "j"), Error) << place;
        continue;
      }
      const JournalContent content = ParseJournal(AsBytes(bytes), "j");

      EXPECT_LE(content.valid_bytes, place);
      EXPECT_THAT(content.note, HasSubstr("left out"));
      ExpectPrefix(content, small, bytes.size());
    }
  }
}

TEST(Journal, NeverGivesAnythingElseAfterRandomFlipsAndCuts) {
  const SmallJournal small = MakeSmallJournal();
  const CounterRng rng(23, StreamId("flips and cuts of a journal"));

  for (uint64_t trial = 0; trial < 4000; ++trial) {
    std::string bytes = small.bytes;
    const auto draw = [&](uint64_t index, uint64_t bound) {
      return static_cast<size_t>(rng.Below(16 * trial + index, bound));
    };
    for (uint64_t flip = 0; flip < trial % 5; ++flip) {
      char& byte = bytes[draw(flip, bytes.size())];
      byte = static_cast<char>(byte ^ (1 << draw(8 + flip, 8)));
    }
    if (trial % 2 == 1) bytes.resize(draw(15, bytes.size()));
    try {
      ExpectPrefix(ParseJournal(AsBytes(bytes), "j"), small, bytes.size());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
    }
  }
}

TEST(Journal, GoesOnBehindTheLastWholeRecord) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  const SmallJournal small = MakeSmallJournal();

  for (size_t size = small.lengths[3]; size < small.bytes.size(); ++size) {
    WriteBytes(path, small.bytes.substr(0, size));

    JournalWriter::Continue(path).Append(SmallRows(3));

    EXPECT_EQ(Bytes(path), small.bytes) << size;
  }
}

TEST(Journal, RefusesAnotherVersionOrARecordThatIsNotItsKind) {
  std::string bytes = MakeSmallJournal().bytes;
  const auto error = [&bytes] {
    try {
      ParseJournal(AsBytes(bytes), "run.journal");
    } catch (const Error& refused) {
      EXPECT_EQ(refused.kind(), ErrorKind::kFormat);
      return std::string(refused.what());
    }
    return std::string();
  };
  const auto fix = [&bytes](size_t begin, size_t end) {
    const uint32_t crc = Crc32c(AsBytes(bytes).subspan(begin, end - begin));
    std::memcpy(bytes.data() + end, &crc, sizeof(crc));
  };
  uint32_t payload = 0;
  std::memcpy(&payload, bytes.data() + 16, sizeof(payload));
  const size_t end = 32 + payload;

  bytes[20] = 9;
  fix(16, end);
  EXPECT_THAT(error(), AllOf(HasSubstr("run.journal: record 0"),
                             HasSubstr("kind 9 is unknown")));
  bytes[20] = 2;
  fix(16, end);
  EXPECT_THAT(error(), HasSubstr("The record is not what isoloss writes"));
  bytes[20] = 1;
  fix(16, end);
  EXPECT_EQ(error(), "");
  bytes[8] = 2;
  fix(0, 12);
  EXPECT_THAT(error(), AllOf(HasSubstr("the journal has version 2"),
                             HasSubstr("with version 7 only")));
  bytes[0] = 'x';
  fix(0, 12);
  EXPECT_THAT(error(), HasSubstr("not the head of a journal"));
}

// Two programs that write to one journal: all before is still good.
TEST(Journal, EndsBeforeARecordWithAnotherNumber) {
  const SmallJournal small = MakeSmallJournal();
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  const std::string second =
      small.bytes.substr(small.lengths[2], small.lengths[3] - small.lengths[2]);
  WriteBytes(path, small.bytes.substr(0, small.lengths[3]) + second);

  const JournalContent content = ReadJournal(path);

  ExpectPrefix(content, small, small.lengths[3] + second.size());
  EXPECT_EQ(content.records, 3u);
  EXPECT_THAT(content.note, HasSubstr("record 3 at byte"));
  EXPECT_THAT(content.note, HasSubstr("has number 2: another program wrote"));
  JournalWriter::Continue(path).Append(SmallRows(3));
  EXPECT_EQ(Bytes(path), small.bytes);
}

TEST(Journal, NamesARemedyThatFitsTheReason) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  JournalWriter writer = JournalWriter::Create(path);
  std::filesystem::create_directory(folder.path() / "taken");

  try {
    writer.Rename(folder.path() / "taken");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("Is a directory"), HasSubstr("check the path"),
                      Not(HasSubstr("make room"))));
  }
  try {
    ReadJournal(folder.path() / "taken");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is a folder or device"));
  }
}

TEST(Journal, NamesTheReasonWhenThereIsNone) {
  const TemporaryFolder folder;

  EXPECT_THROW(ReadJournal(folder.path() / "none"), Error);
  EXPECT_THROW(ReadJournal(folder.path()), Error);
  EXPECT_THROW(JournalWriter::Continue(folder.path() / "none"), Error);
  EXPECT_THROW(JournalWriter::Create(folder.path() / "none" / "j"), Error);
}

// A limit on the size of files stands in for a full disk: write() comes back
// short first and then fails.
TEST(Journal, OnAFullDiskKeepsWholeRecordsAndGoesOnWhenThereIsRoom) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  const SmallJournal small = MakeSmallJournal();

  for (size_t size = small.lengths[2]; size < small.bytes.size(); ++size) {
    JournalWriter writer = JournalWriter::Create(path);
    writer.Append(OfArm("mx"));
    writer.Append(SmallRows(1));
    int64_t step = 2;
    {
      const FileLimit limit(size);
      try {
        for (; step <= 3; ++step) writer.Append(SmallRows(step));
        ADD_FAILURE() << size;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kIo);
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("run.journal"), HasSubstr("File too large"),
                          HasSubstr("make room")));
      }
    }
    EXPECT_EQ(Bytes(path).size(), small.lengths[static_cast<size_t>(step)]);
    EXPECT_EQ(ReadJournal(path).note, "");

    for (; step <= 3; ++step) writer.Append(SmallRows(step));

    EXPECT_EQ(Bytes(path), small.bytes) << size;
  }
}

/// Right CRCs do not make an order: a run would resume behind a wrong step.
TEST(ReadJournal, RejectsStepsThatAreNotOneAfterTheOther) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  const std::vector<std::vector<int64_t>> bad = {
      {1, 3}, {1, 1}, {2}, {1, 2, 1}, {0}, {-1}, {1, kLast}, {kLast, 1}};
  for (const std::vector<int64_t>& steps : bad) {
    JournalWriter writer = JournalWriter::Create(path);
    for (const int64_t step : steps) {
      RunLog rows;
      rows.steps.Append({.step = step, .loss_nats = 1.0});
      writer.Append(rows);
    }

    try {
      ReadJournal(path);
      ADD_FAILURE() << ::testing::PrintToString(steps) << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat);
      EXPECT_THAT(error.what(), HasSubstr("comes behind step"));
    }
  }
}

TEST(ReadJournal, RejectsTimesThatNoCalendarHas) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  for (const double seconds : {std::nan(""), -1.0, 1e300}) {
    JournalWriter writer = JournalWriter::Create(path);
    RunLog rows;
    rows.events = {{.unix_seconds = seconds, .kind = "k", .text = ""}};
    writer.Append(rows);

    EXPECT_THROW(ReadJournal(path), Error) << seconds;
  }
}

TEST(ReadJournal, RejectsPlacesWithoutNames) {
  const auto read = [](const RunLog& rows) {
    const TemporaryFolder folder;
    const auto path = folder.path() / "run.journal";
    JournalWriter::Create(path).Append(rows);
    try {
      ReadJournal(path);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  RunLog rows = SampleLog();
  EXPECT_EQ(read(rows), "");
  rows.tensors.names.clear();
  EXPECT_THAT(read(rows), HasSubstr("/tensors/names has 0 names of 2 tensors"));
  rows = SampleLog();
  rows.parameters.names.clear();
  EXPECT_THAT(read(rows),
              HasSubstr("/parameters/names has 0 names of 3 parameters"));
}

TEST(ReadJournal, RejectsARecordOfTooManyBytes) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  JournalWriter::Create(path);
  // Payload bytes, kind and number of a record whose bytes are holes.
  std::string bytes = Bytes(path);
  bytes += std::string("\0\0\0\x7f\2\0\0\0\0\0\0\0\0\0\0\0", 16);
  WriteBytes(path, bytes);
  std::filesystem::resize_file(path, uint64_t{3} << 30);

  try {
    ReadJournal(path);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("record 0: has 2130706448 bytes"));
  }
}

TEST(ReadJournal, LooksAtTheHeadFirst) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  WriteBytes(path, "isolossJ");
  std::filesystem::resize_file(path, uint64_t{3} << 30);

  EXPECT_THROW(ReadJournal(path), Error);
}

TEST(ReadJournal, RefusesASparseFileBeforeItIsLoaded) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.journal";
  JournalWriter::Create(path);
  std::filesystem::resize_file(path, uint64_t{200} << 30);

  EXPECT_THROW(ReadJournal(path), Error);
}

}  // namespace
}  // namespace isoloss::runlog::journal_test
