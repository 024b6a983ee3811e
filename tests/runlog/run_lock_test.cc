#include "isoloss/runlog/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "isoloss/base/error.h"
#include "runlog/log_file.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog::run_lock_test {
namespace {

using isoloss::test_support::TemporaryFolder;
using isoloss::test_support::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Why the lock of `paths` can't be had; "" if it can.
std::string Refusal(const RunPaths& paths) {
  try {
    const RunLock lock(paths);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    return error.what();
  }
  return "";
}

TEST(RunLock, LetsOneInAtATime) {
  const TemporaryFolder folder;
  const RunPaths paths = {folder.path() / "new", "mx-seed1"};
  {
    const RunLock lock(paths);

    EXPECT_THAT(Refusal(paths),
                AllOf(HasSubstr((paths.folder / paths.name).string()),
                      HasSubstr("another process works on this run (process " +
                                std::to_string(::getpid()) + ")"),
                      HasSubstr("--out")));
    EXPECT_EQ(Refusal({paths.folder, "mx-seed2"}), "");
  }
  EXPECT_EQ(Refusal(paths), "");
}

TEST(RunLock, IsTakenAgainUnlessAnotherHasItMeanwhile) {
  const TemporaryFolder folder;
  const RunPaths paths = {folder.path(), "mx-seed1"};
  const std::filesystem::path file = folder.path() / ".mx-seed1.lock";
  RunLock lock(paths);
  std::filesystem::remove(file);

  lock.Renew();

  EXPECT_THAT(Refusal(paths), HasSubstr("another process"));
  std::filesystem::remove(file);
  const RunLock other(paths);
  EXPECT_THROW(lock.Renew(), Error);
}

/// The file gets the id of its holder: nothing else may be overwritten.
TEST(RunLock, RefusesWhatIsNoFileOfItsOwn) {
  const TemporaryFolder folder;
  const RunPaths paths = {folder.path(), "mx-seed1"};
  const std::filesystem::path victim = folder.path() / "victim";
  const std::filesystem::path lock = folder.path() / ".mx-seed1.lock";
  WriteBytes(victim, "precious");

  std::filesystem::create_symlink("victim", lock);
  EXPECT_THAT(Refusal(paths), HasSubstr(".lock: is a symbolic link"));
  std::filesystem::remove(lock);
  std::filesystem::create_symlink("nowhere", lock);
  EXPECT_THAT(Refusal(paths), HasSubstr(".lock: is a symbolic link"));
  std::filesystem::remove(lock);
  std::filesystem::create_hard_link(victim, lock);
  EXPECT_THAT(Refusal(paths), HasSubstr(".lock: is a second name"));
  std::filesystem::remove(lock);
  ASSERT_EQ(::mkfifo(lock.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(paths), HasSubstr(".lock: is no regular file"));

  EXPECT_EQ(isoloss::test_support::Bytes(victim), "precious");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "nowhere"));
}

TEST(RunLock, EndsWithTheProcessThatHasIt) {
  const TemporaryFolder folder;
  const RunPaths paths = {folder.path(), "mx-seed1"};
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(paths);
    if (::write(ends[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  ::close(ends[0]);

  EXPECT_THAT(Refusal(paths),
              HasSubstr("(process " + std::to_string(child) + ")"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);

  // Nobody else leaves the file behind.
  EXPECT_TRUE(RunLock(paths).is_inherited());
  EXPECT_FALSE(RunLock(paths).is_inherited());
  EXPECT_EQ(Refusal(paths), "");
  EXPECT_THAT(folder.Entries(), IsEmpty());
}

TEST(RunLock, NamesTheReasonWhenThereCanBeNone) {
  const TemporaryFolder folder;
  WriteBytes(folder.path() / "file", "x");
  std::filesystem::create_directory(folder.path() / ".mx-seed1.lock");

  EXPECT_THAT(Refusal({folder.path() / "file", "mx-seed1"}),
              HasSubstr("can't create the folder"));
  EXPECT_THAT(Refusal({folder.path(), "mx-seed1"}),
              HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace isoloss::runlog::run_lock_test
