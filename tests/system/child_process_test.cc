#include "isoloss/system/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "support/temporary_folder.h"

namespace isoloss::system::child_process_test {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kEnough{60};
const std::atomic<bool> kGoOn{false};

ChildResult Shell(const std::string& script,
                  const EnvironmentChanges& environment = {}) {
  return RunChild({"/bin/sh", "-c", script}, environment, kEnough, kGoOn);
}

/// Whether the process is gone, or but a zombie, within some seconds.
bool EndsSoon(const std::string& pid) {
  for (int look = 0; look < 500; ++look) {
    std::ifstream stat("/proc/" + pid + "/stat");
    std::string number;
    std::string name;
    std::string state;
    if (!(stat >> number >> name >> state) || state == "Z") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(ChildProcess, TellsHowItEndedAndWhatItSaid) {
  const ChildResult result = Shell("echo lost; echo why >&2; exit 7");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.errors, "why\n");
  EXPECT_TRUE(result.ended);
  EXPECT_EQ(Shell("kill -9 $$").exit_code, 128 + SIGKILL);
}

TEST(ChildProcess, WorksWhereItIsPutAndAppendsToItsFile) {
  const test_support::TemporaryFolder folder;
  const std::filesystem::path output = folder.path() / "output";
  for (int run = 0; run < 2; ++run) {
    const ChildResult result =
        RunChild({"/bin/sh", "-c", "pwd; echo why >&2"}, {}, kEnough, kGoOn,
                 {.folder = "/", .output = output});
    EXPECT_EQ(result.errors, "why\n");
  }

  EXPECT_EQ(ReadTextFile(output, ""), "/\n/\n");
}

TEST(ChildProcess, HasTheEnvironmentThatIsSetBesides) {
  const ChildResult result =
      Shell("echo $ISOLOSS_TEST $PATH >&2", {{"ISOLOSS_TEST", "set"}});
  EXPECT_THAT(result.errors, HasSubstr("set /"));
}

TEST(ChildProcess, IsKilledWithItsChildrenAfterTheLimit) {
  const ChildResult result =
      RunChild({"/bin/sh", "-c", "sleep 1000 & echo $! >&2; wait"}, {},
               std::chrono::seconds(1), kGoOn);
  EXPECT_FALSE(result.ended);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_TRUE(EndsSoon(result.errors.substr(0, result.errors.find('\n'))));
}

TEST(ChildProcess, IsKilledWhenItIsToStop) {
  const std::atomic<bool> stop{true};
  EXPECT_FALSE(RunChild({"/bin/sleep", "1000"}, {}, kEnough, stop).ended);
}

TEST(ChildProcess, NamesAProgramThatIsNotThere) {
  try {
    RunChild({"/no/such/program"}, {}, kEnough, kGoOn);
    FAIL() << "it was started";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), HasSubstr("/no/such/program"));
  }
}

TEST(ChildProcess, FindsProgramsAsAShellWould) {
  EXPECT_EQ(FindProgram("sh").filename(), "sh");
  EXPECT_TRUE(FindProgram("no-such-program").empty());
}

}  // namespace
}  // namespace isoloss::system::child_process_test
