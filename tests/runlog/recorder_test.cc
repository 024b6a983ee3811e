#include "isoloss/runlog/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/writer.h"
#include "runlog/failing_system.h"
#include "runlog/log_file.h"
#include "runlog/recorded_runs.h"

namespace isoloss::runlog::recorder_test {
namespace {

namespace fs = std::filesystem;

using isoloss::test_support::Bytes;
using isoloss::test_support::hdf5_is_damaged;
using isoloss::test_support::sync_microseconds;
using isoloss::test_support::TemporaryFolder;
using isoloss::test_support::WriteBytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

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

  // 50 builds of 20 ms, less what passed before `built` was read.
  EXPECT_GE(Clock::now() - built, std::chrono::milliseconds(900));
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

}  // namespace
}  // namespace isoloss::runlog::recorder_test
