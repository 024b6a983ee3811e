// Indicators of a run on a device are those of the host, and come from there.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "executors.h"
#include "isoloss/base/text_file.h"
#include "isoloss/treatments/indicator_recorder.h"
#include "kept_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::device::indicators_test {
namespace {

class IndicatorsTest : public testing::TestWithParam<NamedExecutor> {};

TEST_P(IndicatorsTest, AreThoseOfTheHost) {
  const auto recorded = [](Executor* device) {
    const test_support::TemporaryFolder folder;
    const train::Manner manner = {.workers = 2, .ranks = 2, .device = device};
    const train::RunHooks hooks = treatments::RecordIndicators(
        {}, train::KeptExperiment(manner, {"parallel.dispatch_units=4"}),
        /*every=*/2, folder.path() / "run.csv");
    train::Execute({.folder = folder.path(),
                    .manner = manner,
                    .stop_after = 2,
                    .overrides = {"parallel.dispatch_units=4"},
                    .hooks = hooks});
    return ReadTextFile(folder.path() / "run.csv", "");
  };
  Executor& device = *GetParam().executor;

  const std::string found = recorded(&device);

  EXPECT_EQ(found, recorded(nullptr));
  EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 3) << found;
}

INSTANTIATE_TEST_SUITE_P(Devices, IndicatorsTest,
                         testing::ValuesIn(DeviceExecutors()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace isoloss::device::indicators_test
