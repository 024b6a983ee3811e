#include "isoloss/campaign/experiment_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/expect_refused.h"
#include "support/temporary_folder.h"
#include "tiny_experiment.h"

namespace isoloss::campaign::experiment_source_test {
namespace {

using test_support::ExpectRefused;
using ::testing::ElementsAre;

class ExperimentSourceTest : public ::testing::Test {
 protected:
  std::vector<uint64_t> SeedsOf(const std::string& seeds) const {
    return LoadWithSeeds(source_, seeds, folder_.path()).train.seeds;
  }

  test_support::TemporaryFolder folder_;
  const ExperimentSource source_ = {TinyExperiment(folder_.path()).path};
};

TEST_F(ExperimentSourceTest, SeedsAreThoseOfTheFileAListOrMore) {
  EXPECT_THAT(SeedsOf(""), ElementsAre(1, 2));
  EXPECT_THAT(SeedsOf("7,3"), ElementsAre(7, 3));
  EXPECT_THAT(SeedsOf("+2"), ElementsAre(1, 2, 3, 4));
}

TEST_F(ExperimentSourceTest, MoreSeedsStandBehindThoseOfTheFolder) {
  std::ofstream(folder_.path() / "mxfp8-seed9.h5") << "any";

  EXPECT_THAT(SeedsOf("+1"), ElementsAre(1, 2, 10));
}

TEST_F(ExperimentSourceTest, OtherSeedsAreRefused) {
  for (const char* seeds :
       {"+", "+0", "+01", "+10000", "1,", ",1", "-1", "x"}) {
    SCOPED_TRACE(seeds);
    ExpectRefused([&] { SeedsOf(seeds); },
                  "it must be +N with N from 1 to 9999, or a list");
  }
  std::ofstream(folder_.path() / "bf16-seed9223372036854775807.h5") << "any";
  ExpectRefused([&] { SeedsOf("+1"); }, "no 1 larger ones are below 2^63");
}

TEST_F(ExperimentSourceTest, ResultsGoToTheFolderThatIsGivenOrToOneOfItsName) {
  const train::Experiment experiment = source_.Load();

  EXPECT_EQ(ResultsFolder(experiment, ""), "runs/tiny");
  EXPECT_EQ(ResultsFolder(experiment, "elsewhere"), "elsewhere");
}

}  // namespace
}  // namespace isoloss::campaign::experiment_source_test
