#include "isoloss/runlog/recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/writer.h"
#include "runlog/file_limit.h"
#include "runlog/log_file.h"
#include "runlog/sample_log.h"
#include "support/temporary_folder.h"

namespace {

/// Calls that change files until the process dies; negative: it lives.
std::atomic<int> calls_to_live{-1};

/// Whether ftruncate fails.
std::atomic<bool> truncation_fails{false};

/// Whether the bytes of HDF5 files are damaged on their way to the disk.
std::atomic<bool> hdf5_is_damaged{false};

/// How long fsync takes besides.
std::atomic<int> sync_microseconds{0};

/// Whether this call is the last one.
bool Dies() { return calls_to_live >= 0 && calls_to_live-- == 0; }

}  // namespace

// In place of the C library's: what changes files can kill the process, a write
// after half of its bytes.
extern "C" {
ssize_t write(int fd, const void* bytes, size_t count) {
  if (Dies()) {
    ::syscall(SYS_write, fd, bytes, count / 2);
    ::_exit(9);
  }
  const std::string_view text(static_cast<const char*>(bytes), count);
  if (hdf5_is_damaged && text.starts_with("\x89HDF")) {
    std::string damaged(text);
    damaged[count / 2] ^= 1;
    return ::syscall(SYS_write, fd, damaged.data(), count);
  }
  return ::syscall(SYS_write, fd, bytes, count);
}
int rename(const char* from, const char* to) noexcept {
  if (Dies()) ::_exit(9);
  return static_cast<int>(
      ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* path) noexcept {
  if (Dies()) ::_exit(9);
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int ftruncate(int fd, off_t size) noexcept {
  if (Dies()) ::_exit(9);
  if (truncation_fails) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}
int fsync(int fd) {
  if (Dies()) ::_exit(9);
  ::usleep(static_cast<useconds_t>(sync_microseconds.load()));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
}

namespace isoloss::runlog {
namespace {

namespace fs = std::filesystem;

using isoloss::testing::Bytes;
using isoloss::testing::FileLimit;
using isoloss::testing::TemporaryFolder;
using isoloss::testing::WriteBytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr int64_t kSteps = 5;

RunPaths In(const TemporaryFolder& folder) {
  return {folder.path(), "mxfp8-seed1"};
}

Provenance Named(const std::string& arm) {
  Provenance provenance = SampleLog().provenance;
  provenance.arm = arm;
  provenance.complete = false;
  return provenance;
}

Provenance Final(const std::string& arm) {
  Provenance provenance = Named(arm);
  provenance.complete = true;
  return provenance;
}

/// The bytes of a log that has all of `steps` steps, in the order of encoding.
std::vector<std::byte> RowsOf(int64_t steps) {
  RunLog log;
  for (int64_t step = 1; step <= steps; ++step) {
    AppendRows(SampleRows(step), log);
  }
  return EncodeRows(log);
}

/// A whole run; calls `acknowledged` after each step.
template <typename Acknowledged>
void RunAll(const RunPaths& paths, const std::string& arm,
            const Acknowledged& acknowledged) {
  Recorder recorder(paths, Named(arm));
  for (int64_t step = 1; step <= kSteps; ++step) {
    recorder.Append(SampleRows(step));
    acknowledged(step);
    if (step == 2) recorder.Refresh(0);
    if (step == 4) recorder.Sync();
  }
  recorder.Finish(Final(arm));
}

void RunAll(const RunPaths& paths, const std::string& arm) {
  RunAll(paths, arm, [](int64_t) {});
}

TEST(Recorder, EndsWithNothingButTheLog) {
  const TemporaryFolder folder;

  RunAll(In(folder), "a");

  EXPECT_THAT(folder.Entries(), ElementsAre("mxfp8-seed1.h5"));
  const RunLog log = ReadRunLog(In(folder).Log());
  EXPECT_EQ(EncodeRows(log), RowsOf(kSteps));
  EXPECT_TRUE(log.provenance.complete);
}

TEST(Recorder, HasAJournalAndAPartialLogMeanwhile) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  Recorder recorder(paths, Named("a"));

  recorder.Append(SampleRows(1));
  recorder.Refresh(3600);

  EXPECT_THAT(folder.Entries(), ElementsAre("mxfp8-seed1.journal"));
  EXPECT_EQ(EncodeRows(ReadJournal(paths.Journal()).log), RowsOf(1));
  recorder.Append(SampleRows(2));
  recorder.Refresh(0);
  EXPECT_EQ(EncodeRows(ReadRunLog(paths.PartialLog())), RowsOf(2));
  recorder.AddEvent("interrupt", "by hand");
  recorder.Sync();
  const RunLog log = ReadRunLog(paths.PartialLog());
  EXPECT_EQ(log.events.back().kind, "interrupt");
  EXPECT_EQ(EncodeRows(ReadJournal(paths.Journal()).log), EncodeRows(log));
  EXPECT_EQ(EncodeRows(recorder.log()), EncodeRows(log));
  EXPECT_EQ(recorder.last_step(), 2);
}

// A build takes two syncs: of the file and of its folder.
TEST(Recorder, RefreshesSeldomIfThatTakesLong) {
  using Clock = std::chrono::steady_clock;
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  Recorder recorder(paths, Named("a"));
  recorder.Append(SampleRows(1));
  sync_microseconds = 10'000;
  recorder.Refresh(0);
  sync_microseconds = 0;
  const Clock::time_point built = Clock::now();
  EXPECT_EQ(EncodeRows(ReadRunLog(paths.PartialLog())), RowsOf(1));

  recorder.Append(SampleRows(2));
  while (ReadRunLog(paths.PartialLog()).steps.step.size() == 1) {
    recorder.Refresh(0);
  }

  EXPECT_GE(Clock::now() - built, std::chrono::milliseconds(200));
  sync_microseconds = 10'000;
  recorder.Append(SampleRows(3));
  recorder.Sync();
  sync_microseconds = 0;
  recorder.Append(SampleRows(4));
  recorder.Refresh(0);
  EXPECT_EQ(EncodeRows(ReadRunLog(paths.PartialLog())), RowsOf(3));
  recorder.Sync();
  EXPECT_EQ(EncodeRows(ReadRunLog(paths.PartialLog())), RowsOf(4));
}

TEST(Recorder, SyncsTheJournalWithoutBuildingTheLog) {
  const TemporaryFolder folder;
  Recorder recorder(In(folder), Named("a"));
  recorder.Append(SampleRows(1));

  recorder.SyncJournal();

  EXPECT_THAT(folder.Entries(), ElementsAre("mxfp8-seed1.journal"));
}

TEST(Recorder, KeepsTheJournalIfTheLogCannotBeReadBack) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  {
    Recorder recorder(paths, Named("a"));
    for (int64_t step = 1; step <= kSteps; ++step) {
      recorder.Append(SampleRows(step));
    }
    hdf5_is_damaged = true;
    EXPECT_THROW(recorder.Finish(Final("a")), Error);
    hdf5_is_damaged = false;
  }
  EXPECT_FALSE(std::filesystem::exists(paths.Log()));

  Recorder recorder(paths, Named("a"), ReadJournal(paths.Journal()).log,
                    kSteps);
  recorder.Finish(Final("a"));

  EXPECT_EQ(EncodeRows(ReadRunLog(paths.Log())), RowsOf(kSteps));
  EXPECT_THAT(folder.Entries(), ElementsAre("mxfp8-seed1.h5"));
}

/// The files of a run that was killed behind its third step; its partial log
/// has two.
void LeaveUnfinished(const RunPaths& paths) {
  Recorder recorder(paths, Named("a"));
  recorder.Append(SampleRows(1));
  recorder.Append(SampleRows(2));
  recorder.Sync();
  recorder.Append(SampleRows(3));
}

TEST(Recorder, GoesOnFromThePartialLogWhenTheJournalIsDamaged) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  LeaveUnfinished(paths);
  const std::string whole = Bytes(paths.Journal());
  EXPECT_EQ(ReadJournalOrPartial(paths).note, "");
  EXPECT_EQ(EncodeRows(ReadJournalOrPartial(paths).log), RowsOf(3));
  // In the head, in the provenance, in the rows of the first step, in those of
  // the last.
  const size_t rows = EncodeProvenance(Named("a")).size() + 16 + 20;
  for (const size_t place :
       {size_t{3}, size_t{100}, rows + 40, whole.size() - 10}) {
    std::string damaged = whole;
    damaged[place] ^= 1;
    WriteBytes(paths.Journal(), damaged);

    const JournalContent content = ReadJournalOrPartial(paths);

    EXPECT_EQ(EncodeRows(content.log), RowsOf(2)) << place;
    EXPECT_EQ(content.log.provenance.arm, "a");
    const bool partial = place != whole.size() - 10;
    EXPECT_EQ(content.note.find("partial.h5") != std::string::npos, partial);
    {
      Recorder recorder(paths, Named("a"), content.log, 1);
      recorder.Append(SampleRows(2));
      recorder.Append(SampleRows(3));
    }
    EXPECT_EQ(EncodeRows(ReadJournal(paths.Journal()).log), RowsOf(3));
    if (partial) {
      EXPECT_EQ(Bytes(paths.DamagedJournal()), damaged);
    }
  }
}

TEST(Recorder, TakesNoPartialLogOfAnotherRunAndNoDamagedOne) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  LeaveUnfinished(paths);
  std::string damaged = Bytes(paths.Journal());
  damaged[EncodeProvenance(Named("a")).size() + 16 + 20 + 40] ^= 1;
  WriteBytes(paths.Journal(), damaged);
  RunLog other = ReadRunLog(paths.PartialLog());
  other.provenance.seed += 1;
  WriteRunLog(other, paths.PartialLog());

  EXPECT_EQ(EncodeRows(ReadJournalOrPartial(paths).log), RowsOf(0));

  WriteBytes(paths.PartialLog(), "damaged");
  EXPECT_EQ(EncodeRows(ReadJournalOrPartial(paths).log), RowsOf(0));
  damaged[3] ^= 1;
  WriteBytes(paths.Journal(), damaged);
  EXPECT_THROW(ReadJournalOrPartial(paths), Error);
}

TEST(Recorder, LeavesNoTemporaryWhenTheJournalCannotGetItsName) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  std::filesystem::create_directory(paths.Journal());

  EXPECT_THROW(Recorder(paths, Named("a")), Error);

  EXPECT_THAT(folder.Entries(), ElementsAre("mxfp8-seed1.journal"));
}

/// Removes or replaces the journal that a live run appends to.
using Loss = std::function<void(const RunPaths& paths)>;

TEST(Recorder, WritesAJournalAnewThatWasRemovedOrReplaced) {
  const Loss losses[] = {
      [](const RunPaths& paths) { fs::remove(paths.Journal()); },
      [](const RunPaths& paths) {
        fs::copy_file(paths.Journal(), paths.folder / "copy");
        fs::rename(paths.folder / "copy", paths.Journal());
      },
      [](const RunPaths& paths) {
        fs::rename(paths.Journal(), paths.folder / "away");
        WriteBytes(paths.Journal(), {});
      }};
  for (const Loss& lose : losses) {
    const TemporaryFolder folder;
    const RunPaths paths = In(folder);
    Recorder recorder(paths, Named("mxfp8"));
    int told = 0;
    recorder.OnJournalLost([&told] { ++told; });
    recorder.Append(SampleRows(1));
    recorder.Append(SampleRows(2));
    lose(paths);

    recorder.Append(SampleRows(3));
    recorder.Append(SampleRows(4));

    const RunLog kept = ReadJournal(paths.Journal()).log;
    EXPECT_THAT(kept.steps.step, ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(FirstDifference(kept, recorder.log()), "");
    EXPECT_EQ(kept.provenance.arm, "mxfp8");
    EXPECT_EQ(told, 1);
    ASSERT_FALSE(kept.events.empty());
    EXPECT_EQ(kept.events.back().kind, "damage");
    EXPECT_THAT(kept.events.back().text,
                HasSubstr("with all rows up to step 3"));
  }
}

TEST(Recorder, NamesAFolderThatWasRemovedOrRenamed) {
  for (const bool removed : {false, true}) {
    const TemporaryFolder folder;
    const RunPaths paths = {folder.path() / "runs", "mxfp8-seed1"};
    fs::create_directories(paths.folder);
    Recorder recorder(paths, Named("mxfp8"));
    recorder.Append(SampleRows(1));
    if (removed) {
      fs::remove_all(paths.folder);
    } else {
      fs::rename(paths.folder, folder.path() / "away");
    }

    try {
      recorder.Append(SampleRows(2));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(paths.folder.string()),
                                      HasSubstr("was removed or renamed"),
                                      HasSubstr("--resume")));
    }
  }
}

TEST(Recorder, InMemoryWritesNoFile) {
  Recorder recorder(Named("a"));

  for (int64_t step = 1; step <= kSteps; ++step) {
    recorder.Append(SampleRows(step));
  }
  recorder.Sync();
  recorder.Finish(Final("a"));

  EXPECT_EQ(EncodeRows(recorder.log()), RowsOf(kSteps));
}

// Each instruction set has another one for 0 / 0.
TEST(Recorder, RecordsEveryNanAlike) {
  RunLog positive = SampleRows(1);
  positive.steps.loss_nats.back() = std::numeric_limits<double>::quiet_NaN();
  RunLog negative = positive;
  negative.steps.loss_nats.back() = -positive.steps.loss_nats.back();
  Recorder a(Named("a"));
  Recorder b(Named("a"));

  a.Append(positive);
  b.Append(negative);

  EXPECT_EQ(FirstDifference(a.log(), b.log()), "");
}

TEST(Recorder, RemovesWhatAnEarlierRunLeft) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  std::filesystem::create_directory(paths.Checkpoints());
  const auto dumps = folder.path() / "dumps";
  std::filesystem::create_directory(dumps);
  for (const auto& path :
       {paths.Log(), paths.PartialLog(), paths.Journal(),
        paths.Checkpoints() / "step-000001", folder.path() / "other.h5",
        folder.path() / ".mxfp8-seed1.partial.h5.77-1.tmp",
        folder.path() / ".mxfp8-seed1.journal.new.tmp",
        folder.path() / "..mxfp8-seed1.journal.new.tmp.77-0.tmp",
        dumps / ".mxfp8-seed1.dump-000004.h5.77-2.tmp",
        dumps / ".mxfp8-seed11.dump-000004.h5.77-2.tmp"}) {
    WriteBytes(path, "old");
  }

  const Recorder recorder(paths, Named("a"));

  EXPECT_THAT(folder.Entries(),
              UnorderedElementsAre("mxfp8-seed1.journal", "other.h5", "dumps"));
  const std::filesystem::directory_iterator left(dumps);
  EXPECT_EQ(left->path().filename(), ".mxfp8-seed11.dump-000004.h5.77-2.tmp");
  EXPECT_EQ(std::next(left), std::filesystem::directory_iterator());
}

TEST(Recorder, LooksForTemporariesOnlyWhereAProcessMayHaveLeftThem) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  const auto left = folder.path() / ".mxfp8-seed1.h5.77-1.tmp";
  const auto last = paths.folder / ".mxfp8-seed1.journal.new.tmp";
  WriteBytes(left, "old");

  // Beside no journal: the whole folder is not read for it.
  { const Recorder recorder(paths, Named("a")); }
  EXPECT_TRUE(std::filesystem::exists(left));
  // Beside the journal of that one, and beside the first file of a run.
  { const Recorder recorder(paths, Named("a")); }
  EXPECT_FALSE(std::filesystem::exists(left));
  RemoveLiveFiles(paths);
  WriteBytes(left, "old");
  WriteBytes(last, "old");
  { const Recorder recorder(paths, Named("a")); }
  EXPECT_FALSE(std::filesystem::exists(left));
  // Whoever inherits the lock of a killed process looks in any case.
  WriteBytes(left, "old");
  RemoveTemporaries(paths);
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST(Recorder, ResumedFromAnyStepGivesTheSameLog) {
  for (int64_t recorded = 1; recorded <= kSteps; ++recorded) {
    for (int64_t from = 0; from <= recorded; ++from) {
      const TemporaryFolder folder;
      const RunPaths paths = In(folder);
      {
        Recorder recorder(paths, Named("a"));
        for (int64_t step = 1; step <= recorded; ++step) {
          recorder.Append(SampleRows(step));
        }
      }

      Recorder recorder(paths, Named("a"), ReadJournal(paths.Journal()).log,
                        from);
      for (int64_t step = from + 1; step <= kSteps; ++step) {
        RunLog rows = SampleRows(step);
        rows.events.clear();
        // Clocks do not come out the same.
        rows.steps.step_seconds[0] =
            step <= recorded ? 99 : rows.steps.step_seconds[0];
        recorder.Append(rows);
        EXPECT_EQ(EncodeRows(ReadJournal(paths.Journal()).log),
                  EncodeRows(recorder.log()));
      }
      recorder.Finish(Final("a"));

      EXPECT_EQ(EncodeRows(ReadRunLog(paths.Log())), RowsOf(kSteps))
          << recorded << " recorded, resumed from " << from;
    }
  }
}

TEST(Recorder, RefusesAStepThatComesOutDifferently) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  {
    Recorder recorder(paths, Named("a"));
    for (int64_t step = 1; step <= 3; ++step) recorder.Append(SampleRows(step));
  }
  Recorder recorder(paths, Named("a"), ReadJournal(paths.Journal()).log, 1);
  recorder.Append(SampleRows(2));
  RunLog rows = SampleRows(3);
  rows.moe.expert_ids[11] += 1;
  const std::string before = Bytes(paths.Journal());

  try {
    recorder.Append(rows);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("mxfp8-seed1.journal"),
                      HasSubstr("/moe/expert_ids at step 3: 2236 against "
                                "2235")));
  }
  EXPECT_EQ(Bytes(paths.Journal()), before);
}

TEST(Recorder, RefusesToGoOnBehindAStepThatTheJournalLacks) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  { Recorder(paths, Named("a")).Append(SampleRows(1)); }

  EXPECT_THROW(Recorder(paths, Named("a"), ReadJournal(paths.Journal()).log, 2),
               Error);
}

TEST(Recorder, LeavesLogAndJournalAloneWhenRowsDoNotFit) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  Recorder recorder(paths, Named("a"));
  recorder.Append(SampleRows(1));
  RunLog rows = SampleRows(2);
  rows.steps.lr.clear();

  EXPECT_THROW(recorder.Append(rows), Error);

  EXPECT_EQ(EncodeRows(recorder.log()), RowsOf(1));
  EXPECT_EQ(EncodeRows(ReadJournal(paths.Journal()).log), RowsOf(1));
}

TEST(Recorder, CutsOffLaterWhatItCouldNotCutOffAtOnce) {
  const TemporaryFolder folder;
  const RunPaths paths = In(folder);
  Recorder recorder(paths, Named("a"));
  recorder.Append(SampleRows(1));
  const size_t whole = Bytes(paths.Journal()).size();
  truncation_fails = true;
  {
    const FileLimit limit(whole + 100);
    EXPECT_THROW(recorder.Append(SampleRows(2)), Error);
  }
  EXPECT_EQ(Bytes(paths.Journal()).size(), whole + 100);
  EXPECT_THROW(recorder.Append(SampleRows(2)), Error);
  EXPECT_EQ(EncodeRows(ReadJournal(paths.Journal()).log), RowsOf(1));
  truncation_fails = false;

  recorder.Append(SampleRows(2));

  EXPECT_EQ(EncodeRows(ReadJournal(paths.Journal()).log), RowsOf(2));
  EXPECT_EQ(EncodeRows(recorder.log()), RowsOf(2));
}

/// Kills a run at its `calls`-th change of a file, over what `RunAll` of arm
/// "old" left. Returns whether it was killed; `acknowledged` is its last step.
bool KilledAfter(int calls, const RunPaths& paths, int64_t& acknowledged) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    calls_to_live = calls;
    RunAll(paths, "new", [&](int64_t step) {
      const char byte = static_cast<char>(step);
      ::syscall(SYS_write, ends[1], &byte, 1);
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  char byte = 0;
  while (::read(ends[0], &byte, 1) == 1) acknowledged = byte;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 9;
}

/// What somebody finds who looks for the run: its log if it has ended, else its
/// journal.
RunLog Found(const RunPaths& paths) {
  if (std::filesystem::exists(paths.Log())) return ReadRunLog(paths.Log());
  return ReadJournal(paths.Journal()).log;
}

TEST(Recorder, KilledAtAnyWriteLeavesEveryAcknowledgedStep) {
  // Over nothing, over a finished run, over an unfinished one.
  for (const int earlier : {0, 1, 2}) {
    bool killed = true;
    int calls = 0;
    for (; killed; ++calls) {
      const TemporaryFolder folder;
      const RunPaths paths = In(folder);
      if (earlier == 1) RunAll(paths, "old");
      if (earlier == 2) {
        Recorder old(paths, Named("old"));
        for (int64_t step = 1; step <= 3; ++step) old.Append(SampleRows(step));
        old.Sync();
      }
      int64_t acknowledged = 0;

      killed = KilledAfter(calls, paths, acknowledged);

      if (acknowledged == 0 && earlier == 0 &&
          !std::filesystem::exists(paths.Journal())) {
        continue;
      }
      const RunLog log = Found(paths);
      const auto steps = static_cast<int64_t>(log.steps.step.size());
      if (log.provenance.arm == "old") {
        EXPECT_EQ(acknowledged, 0);
        EXPECT_EQ(steps, earlier == 1 ? kSteps : 3) << calls;
      } else {
        EXPECT_EQ(log.provenance.arm, "new");
        // A record that was written whole need not have been acknowledged yet.
        EXPECT_THAT(steps, ::testing::AnyOf(acknowledged, acknowledged + 1));
      }
      EXPECT_EQ(EncodeRows(log), RowsOf(steps)) << calls;
      if (std::filesystem::exists(paths.PartialLog())) {
        ReadRunLog(paths.PartialLog());
      }
      ASSERT_LT(calls, 1000);
    }
    // Two writes, two syncs and five removals and renames to begin with, a
    // write a step, and four calls for each of three HDF5 files.
    EXPECT_GT(calls, 2 + 2 + 5 + 5 + 3 * 4);
  }
}

TEST(Recorder, KilledAtAnyWriteCanBeResumed) {
  bool killed = true;
  for (int calls = 0; killed; ++calls) {
    const TemporaryFolder folder;
    const RunPaths paths = In(folder);
    int64_t acknowledged = 0;
    killed = KilledAfter(calls, paths, acknowledged);
    if (!std::filesystem::exists(paths.Journal())) continue;

    Recorder recorder(paths, Named("new"), ReadJournal(paths.Journal()).log, 0);
    const bool began = recorder.last_step() > 0;
    for (int64_t step = 1; step <= kSteps; ++step) {
      RunLog rows = SampleRows(step);
      if (began) rows.events.clear();
      recorder.Append(rows);
    }
    recorder.Finish(Final("new"));

    EXPECT_EQ(EncodeRows(ReadRunLog(paths.Log())), RowsOf(kSteps)) << calls;
    EXPECT_THAT(folder.Entries(), ElementsAre("mxfp8-seed1.h5")) << calls;
  }
}

// The limit stands in for a full disk; the log is larger than the journal of
// some steps, so that each of them is hit at some size.
TEST(Recorder, OnAFullDiskIsAnErrorThatLeavesEverythingReadable) {
  int failures = 0;
  for (size_t size = 16; size <= 420'000; size += 10'007) {
    const TemporaryFolder folder;
    const RunPaths paths = In(folder);
    RunAll(paths, "old");
    int64_t acknowledged = 0;
    try {
      const FileLimit limit(size);
      RunAll(paths, "new", [&](int64_t step) { acknowledged = step; });
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo) << error.what();
      ++failures;
    }

    const RunLog log = Found(paths);
    const auto steps = static_cast<int64_t>(log.steps.step.size());
    EXPECT_EQ(EncodeRows(log), RowsOf(steps)) << size;
    EXPECT_EQ(steps, log.provenance.arm == "old" ? kSteps : acknowledged);
    if (std::filesystem::exists(paths.PartialLog())) {
      ReadRunLog(paths.PartialLog());
    }
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace isoloss::runlog
