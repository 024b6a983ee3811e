#include "isoloss/goldens/golden_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "../runlog/sample_log.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/writer.h"
#include "support/temporary_folder.h"

namespace isoloss::goldens::golden_lanes_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OtherDescriptionTest : public ::testing::Test {
 protected:
  compare::Run Written(
      const std::string& name,
      const std::function<void(runlog::RunLog&)>& change = {}) const {
    runlog::RunLog log = runlog::SampleLog();
    if (change) change(log);
    const std::filesystem::path file = folder_.path() / name;
    runlog::WriteRunLog(log, file);
    return {file.string(), runlog::ReadRunLog(file)};
  }
  std::string Against(const compare::Run& run) const {
    return OtherDescription(golden_, run, CompareExactly(golden_, run));
  }

  test_support::TemporaryFolder folder_;
  compare::Run golden_ = Written("golden.h5");
};

TEST_F(OtherDescriptionTest, IsEmptyForWhatRoundingChanges) {
  EXPECT_THAT(Against(Written("run.h5",
                              [](runlog::RunLog& log) {
                                log.steps.loss_nats[0] += 1;
                                log.provenance.final_weights_digest += "0";
                              })),
              IsEmpty());
}

TEST_F(OtherDescriptionTest, NamesWhatIsSaidOtherwiseOfTheRun) {
  EXPECT_THAT(Against(Written("run.h5",
                              [](runlog::RunLog& log) {
                                ++log.provenance.gemms_per_step;
                              })),
              HasSubstr("otherwise than the golden: gemms_per_step"));
}

TEST_F(OtherDescriptionTest, NamesWhatTheFileHasLost) {
  EXPECT_THAT(Against(Written(
                  "run.h5",
                  [](runlog::RunLog& log) { log.steps.batch_digest.clear(); })),
              HasSubstr("does not have what the golden's file has: "
                        "/steps/batch_digest"));
}

}  // namespace
}  // namespace isoloss::goldens::golden_lanes_test
