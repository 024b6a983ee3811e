// A run that is killed at any change of a file, or whose disk is full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "isoloss/base/error.h"
#include "isoloss/runlog/reader.h"
#include "runlog/failing_system.h"
#include "runlog/file_limit.h"
#include "runlog/log_file.h"
#include "runlog/recorded_runs.h"

namespace isoloss::runlog::recorder_crash_test {
namespace {

using isoloss::test_support::Bytes;
using isoloss::test_support::calls_to_live;
using isoloss::test_support::FileLimit;
using isoloss::test_support::TemporaryFolder;
using isoloss::test_support::truncation_fails;
using ::testing::ElementsAre;

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
}  // namespace isoloss::runlog::recorder_crash_test
