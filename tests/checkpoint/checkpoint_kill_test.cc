// A writer that is killed at each of its system calls, and one whose system
// calls fail one after the other, leave a whole checkpoint that is found.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "isoloss/checkpoint/checkpoint.h"
#include "samples.h"

namespace isoloss::checkpoint::checkpoint_kill_test {
namespace {

namespace fs = std::filesystem;

enum class Ended { kByItself, kKilled, kNotTraceable };

/// Runs WriteSample in a child that is killed as it enters (or has just left)
/// its `stop`-th system call.
Ended WriteKilled(const fs::path& checkpoints, int64_t step, int stop) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    WriteSample(checkpoints, step);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return Ended::kNotTraceable;
  // Entry and exit of a call are a stop each.
  for (int stops = 0; stops <= stop; ++stops) {
    if (::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0 ||
        ::waitpid(child, &status, 0) < 0) {
      break;
    }
    if (WIFEXITED(status)) return Ended::kByItself;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return Ended::kKilled;
}

/// Kills the writing of `step` at every call, each time over what `prepare`
/// makes; whatever happens, `before` or `step` is found and whole.
void KillEverywhere(int64_t before, int64_t step,
                    void (*prepare)(const fs::path& checkpoints)) {
  bool found_before = false;
  bool found_after = false;
  int stop = 0;
  for (Ended ended = Ended::kKilled; ended == Ended::kKilled; ++stop) {
    const TestFolder folder;
    prepare(folder.path());
    ended = WriteKilled(folder.path(), step, stop);
    if (ended == Ended::kNotTraceable) {
      GTEST_SKIP() << "this process may not trace its children";
    }

    const Found found = FindNewest(folder.path());
    ASSERT_TRUE(found.checkpoint) << "killed at stop " << stop;
    ExpectSample(*found.checkpoint);
    const int64_t newest = found.checkpoint->step();
    ASSERT_TRUE(newest == before || newest == step) << newest;
    found_before |= newest == before;
    found_after |= newest == step;
    ASSERT_FALSE(found_after && newest < step) << "stop " << stop;

    // The next writer takes everything away that is no longer needed.
    WriteSample(folder.path(), step + 10);
    EXPECT_EQ(FindNewest(folder.path()).checkpoint->step(), step + 10);
    EXPECT_TRUE(FindNewest(folder.path()).notes.empty());
    for (const std::string& name : NamesIn(folder.path())) {
      EXPECT_FALSE(name.starts_with('.')) << name << ", stop " << stop;
    }
    EXPECT_LE(NamesIn(folder.path()).size(), 3u) << "stop " << stop;
  }
  EXPECT_TRUE(found_before);
  EXPECT_TRUE(found_after);
  // Some 40 calls, two stops each: far fewer would mean nothing was traced.
  EXPECT_GT(stop, 40);
}

TEST(Kill, AtEverySystemCallOfANewStep) {
  KillEverywhere(20, 30, [](const fs::path& checkpoints) {
    WriteSample(checkpoints, 10);
    WriteSample(checkpoints, 20);
  });
}

TEST(Kill, AtEverySystemCallOfAStepThatIsTheOnlyOneAndIsReplaced) {
  KillEverywhere(20, 20, [](const fs::path& checkpoints) {
    WriteSample(checkpoints, 20);
  });
}

}  // namespace
}  // namespace isoloss::checkpoint::checkpoint_kill_test
