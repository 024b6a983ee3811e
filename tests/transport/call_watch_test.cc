// Calls that do not return are noticed; work that takes long is not.
#include "isoloss/transport/call_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

namespace isoloss::transport::call_watch_test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kDeadline = 0.3;
/// By far longer than a thread that looks each 0.1 s needs.
constexpr milliseconds kLong{1500};

/// A watch, and what it says.
struct Watched {
  explicit Watched(const std::string& trouble, const std::string& forsaken)
      : watch({.trouble = [trouble] { return trouble; },
               .forsaken = [forsaken] { return forsaken; },
               .stuck =
                   [this](const std::string& text) {
                     problem.set_value(text);
                   }}) {
    watch.set_deadline(kDeadline);
  }

  /// "" if it says nothing for long.
  std::string Problem() {
    auto future = problem.get_future();
    return future.wait_for(kLong) == std::future_status::ready ? future.get()
                                                               : "";
  }

  std::promise<std::string> problem;
  CallWatch watch;
};

TEST(CallWatch, NamesACallThatDoesNotReturn) {
  Watched watched("", "");
  const CallWatch::Scope scope(watched.watch, "MPI_Test", 0);

  EXPECT_THAT(watched.Problem(),
              AllOf(HasSubstr("MPI_Test has not returned for 0."),
                    HasSubstr("it may take 0.3 s. Look what became of")));
}

TEST(CallWatch, AllowsACallAsLongAsItMayTake) {
  Watched watched("", "");
  const CallWatch::Scope scope(watched.watch, "MPI_Finalize", 100);

  EXPECT_EQ(watched.Problem(), "");
}

TEST(CallWatch, AllowsOnlyTheDeadlineIfThereIsTrouble) {
  Watched watched("The launcher is stopped.", "");
  const CallWatch::Scope scope(watched.watch, "MPI_Finalize", 100);

  EXPECT_THAT(watched.Problem(), AllOf(HasSubstr("MPI_Finalize"),
                                       HasSubstr("The launcher is stopped.")));
}

TEST(CallWatch, SaysNothingOfManyShortCallsAndOfLongWork) {
  Watched watched("The launcher is stopped.", "");
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (std::chrono::steady_clock::now() < end) {
    const CallWatch::Scope scope(watched.watch, "MPI_Test", 0);
    std::this_thread::sleep_for(milliseconds(1));
  }

  EXPECT_EQ(watched.Problem(), "");
}

TEST(CallWatch, EndsWorkForWhichNobodyWaitsAnyMore) {
  Watched watched("", "process 1 says that it was lonely");

  EXPECT_THAT(watched.Problem(),
              AllOf(HasSubstr("the job is over"),
                    HasSubstr("process 1 says that it was lonely")));
}

}  // namespace
}  // namespace isoloss::transport::call_watch_test
