// A run's log does not tell which of its steps a device computed.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "executors.h"
#include "isoloss/train/trainer.h"
#include "kept_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::device::run_test {
namespace {

using train::Execute;
using train::ExpectSame;
using train::Manner;

struct Case {
  std::string arm;
  size_t ranks;
};

class RunTest : public testing::TestWithParam<std::tuple<Case, NamedExecutor>> {
 protected:
  static std::string arm() { return std::get<0>(GetParam()).arm; }

  static Manner OnHost() {
    return {.workers = 2, .ranks = std::get<0>(GetParam()).ranks};
  }
  static Manner OnDevice() {
    Manner manner = OnHost();
    manner.device = std::get<1>(GetParam()).executor.get();
    return manner;
  }

  /// Stops a run after four steps, goes on with it in the other manner, and
  /// expects the log of a whole run on the host.
  static void ExpectToGoOn(const Manner& first, const Manner& second) {
    const test_support::TemporaryFolder whole;
    const test_support::TemporaryFolder folder;
    const runlog::RunLog expected =
        Execute({.folder = whole.path(), .manner = OnHost(), .arm = arm()});
    Execute({.folder = folder.path(),
             .manner = first,
             .stop_after = 4,
             .arm = arm()});
    const runlog::RunLog found = Execute({.folder = folder.path(),
                                          .manner = second,
                                          .resume = true,
                                          .arm = arm()});
    ExpectSame(found, expected, folder.path());
  }
};

TEST_P(RunTest, GoesOnOnTheHost) { ExpectToGoOn(OnDevice(), OnHost()); }
TEST_P(RunTest, GoesOnOnTheDevice) { ExpectToGoOn(OnHost(), OnDevice()); }

INSTANTIATE_TEST_SUITE_P(
    Arms, RunTest,
    testing::Combine(testing::Values(Case{"mxfp8", 4},
                                     Case{"te_fp8_delayed", 1}),
                     testing::ValuesIn(DeviceExecutors())),
    [](const auto& test) {
      return std::get<0>(test.param).arm + "_" + std::get<1>(test.param).name;
    });

}  // namespace
}  // namespace isoloss::device::run_test
