#include "isoloss/runlog/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isoloss/base/error.h"
#include "isoloss/runlog/writer.h"
#include "runlog/log_file.h"
#include "runlog/sample_log.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog::layout_test {
namespace {

using isoloss::test_support::TemporaryFolder;
using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Not;

TEST(LayoutOf, NamesEachDatasetAndAttribute) {
  const TemporaryFolder folder;
  WriteRunLog(SampleLog(), folder.path() / "run.h5");

  EXPECT_THAT(LayoutOf(folder.path() / "run.h5"),
              IsSupersetOf({"/steps/loss_nats", "/steps/loss_nats@unit",
                            "/steps@description", "@seed"}));
}

TEST(LayoutOf, IsTheSameWhateverTheValuesAre) {
  const TemporaryFolder folder;
  RunLog log = SampleLog();
  WriteRunLog(log, folder.path() / "one.h5");
  log.steps.loss_nats[0] += 1;
  log.provenance.arm += "x";
  WriteRunLog(log, folder.path() / "other.h5");

  EXPECT_EQ(LayoutOf(folder.path() / "one.h5"),
            LayoutOf(folder.path() / "other.h5"));
}

TEST(LayoutOf, ShowsAColumnThatIsMissing) {
  const TemporaryFolder folder;
  RunLog log = SampleLog();
  log.steps.batch_digest.clear();
  WriteRunLog(log, folder.path() / "run.h5");

  EXPECT_THAT(LayoutOf(folder.path() / "run.h5"),
              Not(Contains("/steps/batch_digest")));
}

TEST(LayoutOf, RefusesADamagedFile) {
  const TemporaryFolder folder;
  isoloss::test_support::WriteBytes(folder.path() / "run.h5", "no log");

  EXPECT_THROW(LayoutOf(folder.path() / "run.h5"), Error);
}

}  // namespace
}  // namespace isoloss::runlog::layout_test
