#include "isoloss/studies/rate_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "../campaign/tiny_experiment.h"
#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::studies::rate_sweep_test {
namespace {

const train::TuningConfig kSweep = {.rates = {0.005, 0.01, 0.02},
                                    .held_out = {2, 1, 2},
                                    .seeds = {1001, 1002},
                                    .configuration = "0a",
                                    .seed_optima = {0.009, 0.011}};

using ::testing::HasSubstr;

class WithTuningTest : public ::testing::Test {
 protected:
  std::string Text() const {
    std::stringstream text;
    text << std::ifstream(file_).rdbuf();
    return text.str();
  }
  void Write(const train::TuningConfig& tuning,
             std::optional<double> parameters = std::nullopt) const {
    WriteFileAtomically(file_,
                        WithTuning(file_, TuningText(tuning, parameters)));
  }
  train::Experiment Read() const {
    return campaign::ExperimentSource{file_.string(), {}}.Load();
  }

  test_support::TemporaryFolder folder_;
  const std::filesystem::path file_ =
      campaign::TinyExperiment(folder_.path()).path;
};

TEST_F(WithTuningTest, WritesWhatReadsBack) {
  const std::string before = Text();

  Write(kSweep);
  Write(kSweep, 60'000);

  EXPECT_TRUE(Text().starts_with(before));
  const train::Experiment read = Read();
  EXPECT_EQ(read.tuning.rates, kSweep.rates);
  EXPECT_EQ(read.tuning.seed_optima, kSweep.seed_optima);
  EXPECT_EQ(read.scaled_tuning.parameters, 60'000);
  EXPECT_EQ(read.scaled_tuning.sweep.rates, kSweep.rates);
  EXPECT_EQ(read.scaled_tuning.sweep.configuration, "0a");
}

TEST_F(WithTuningTest, ReplacesItsOwnTableAlone) {
  Write(kSweep);
  Write(kSweep, 60'000);
  train::TuningConfig other = kSweep;

  other.configuration = "0b";
  Write(other);
  other.configuration = "0c";
  Write(other, 70'000);

  const train::Experiment read = Read();
  EXPECT_EQ(read.tuning.configuration, "0b");
  EXPECT_EQ(read.scaled_tuning.sweep.configuration, "0c");
  EXPECT_EQ(read.scaled_tuning.parameters, 70'000);
  EXPECT_EQ(read.scaled_tuning.sweep.seed_optima, kSweep.seed_optima);
}

TEST_F(WithTuningTest, KeepsAnIndentedTableAndCommentsAtTheEnd) {
  Write(kSweep);
  WriteFileAtomically(file_, Text() + "  [gate]\n  margin_percent = 2\n");
  Write(kSweep);
  EXPECT_THAT(Text(), HasSubstr("  [gate]\n  margin_percent = 2\n"));
  WriteFileAtomically(file_, Text() + "# The end.\n");
  Write(kSweep);
  EXPECT_THAT(Text(), HasSubstr("# The end.\n"));
}

TEST_F(WithTuningTest, StaysUnderTheCommentsAboveIt) {
  WriteFileAtomically(file_, Text() + "# Of the sweep.\n" + TuningText(kSweep) +
                                 "\n# Of the gate.\n[gate]\n");
  const std::string before = Text();

  Write(kSweep);

  EXPECT_EQ(Text(), before);
}

TEST_F(WithTuningTest, LeavesTheFileIfItWouldNotReadBack) {
  const std::string before = Text();
  train::TuningConfig wrong = kSweep;
  wrong.held_out.pop_back();

  EXPECT_THROW(Write(wrong), Error);
  EXPECT_EQ(Text(), before);
}

TEST(SweptRates, KnowTheOptimumOfEachSeed) {
  const SweptRates swept{
      .seeds = {1, 2}, .rates = {1, 2, 4}, .losses = {{2, 2}, {1, 1}, {2, 2}}};

  const std::vector<double> optima = swept.SeedOptima();
  ASSERT_EQ(optima.size(), 2u);
  EXPECT_NEAR(optima[0], 2, 1e-12);
  EXPECT_NEAR(optima[1], 2, 1e-12);
}

TEST(SweptRates, DoNotKnowAnOptimumAtTheEdge) {
  const SweptRates swept{
      .seeds = {1, 2}, .rates = {1, 2, 4}, .losses = {{2, 2}, {1, 2}, {2, 1}}};

  EXPECT_TRUE(swept.SeedOptima().empty());
}

}  // namespace
}  // namespace isoloss::studies::rate_sweep_test
