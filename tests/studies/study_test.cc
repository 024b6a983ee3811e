#include "isoloss/studies/study.h"

#include <gtest/gtest.h>

#include <fstream>

#include "../campaign/tiny_experiment.h"
#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::studies {
namespace {

class StudyTest : public ::testing::Test {
 protected:
  Study TwoCells(const std::string& folder) {
    Study study{.kind = "ladder",
                .folder = folder_.path() / folder,
                .cells = {},
                .plan = "study = \"ladder\"\n"};
    for (const char* name : {"a", "b"}) {
      study.cells.push_back(
          {.name = name,
           .experiment = campaign::TinyExperiment(folder_.path()),
           .hooks = {},
           .seconds = 1});
    }
    study.cells[1].experiment.train.lr *= 2;
    return study;
  }

  testing::TemporaryFolder folder_;
};

/// Losses of a cell's runs, run by run, in the order of their names.
std::vector<std::vector<float>> Losses(const Study& study, size_t cell) {
  std::vector<std::vector<float>> losses;
  for (const compare::Run& run : RunsOf(study, study.cells[cell])) {
    const auto& values = run.log.steps.loss_nats;
    losses.emplace_back(values.begin(), values.end());
  }
  return losses;
}

TEST_F(StudyTest, PartsTrainWhatTheWholeDoes) {
  const Study whole = TwoCells("whole");
  PrepareStudy(whole);
  ASSERT_TRUE(TrainStudy(whole));
  const Study shared = TwoCells("shared");
  PrepareStudy(shared);
  ASSERT_TRUE(TrainStudy(shared, {.index = 2, .count = 2}));
  EXPECT_EQ(RunsOf(shared, shared.cells[0]).size(), 2u);  // arms of one seed
  ASSERT_TRUE(TrainStudy(shared, {.index = 1, .count = 2}));

  for (const size_t cell : {0, 1}) {
    EXPECT_EQ(Losses(whole, cell).size(), 4u);
    EXPECT_EQ(Losses(whole, cell), Losses(shared, cell));
  }
  EXPECT_NE(Losses(whole, 0), Losses(whole, 1));
}

TEST_F(StudyTest, RefusesMorePartsThanSeeds) {
  const Study study = TwoCells("parts");
  EXPECT_THROW(PrepareStudy(study, {.index = 1, .count = 3}), Error);
  EXPECT_FALSE(std::filesystem::exists(study.folder));
}

TEST_F(StudyTest, AFolderHoldsOneStudy) {
  Study study = TwoCells("folder");
  PrepareStudy(study);
  EXPECT_NO_THROW(PrepareStudy(study));
  study.plan = "study = \"stress\"\n";
  EXPECT_THROW(PrepareStudy(study), Error);
}

TEST_F(StudyTest, AFolderOfOtherFilesIsLeftAlone) {
  const Study study = TwoCells("mine");
  std::filesystem::create_directories(study.folder);
  std::ofstream(study.folder / "notes") << "mine";
  EXPECT_THROW(PrepareStudy(study), Error);
  EXPECT_FALSE(std::filesystem::exists(study.folder / "cells"));
}

TEST_F(StudyTest, CostsWhatIsLeft) {
  Study study = TwoCells("cost");
  study.cells[0].seconds = 240;
  study.cells[1].seconds = 12;
  EXPECT_EQ(CostText(study, study.cells[0]), "4.0 min");
  EXPECT_EQ(CostText(study, study.cells[1]), "12 s");
  EXPECT_EQ(CostText(study), "4.2 min");

  PrepareStudy(study);
  ASSERT_TRUE(TrainStudy(study, {.index = 1, .count = 2}));
  EXPECT_EQ(CostText(study, study.cells[0]), "2.0 min left of 4.0 min");
  EXPECT_EQ(CostText(study, study.cells[1]), "6 s left of 12 s");
  ASSERT_TRUE(TrainStudy(study, {.index = 2, .count = 2}));
  EXPECT_EQ(CostText(study, study.cells[1]), "done");
  EXPECT_EQ(CostText(study), "done");
}

TEST(ConsecutiveSeeds, BeginWithTheFirstOfTheExperiment) {
  train::Experiment experiment;
  experiment.train.seeds = {7, 2};
  EXPECT_EQ(ConsecutiveSeeds(experiment, 3), (std::vector<uint64_t>{7, 8, 9}));
}

TEST(ParseStudyPart, ReadsShares) {
  EXPECT_EQ(ParseStudyPart("2/4").index, 2u);
  EXPECT_EQ(ParseStudyPart("2/4").count, 4u);
  for (const char* text : {"", "2", "0/4", "5/4", "1/", "1/4x", "-1/4", "/"}) {
    EXPECT_THROW(ParseStudyPart(text), Error) << text;
  }
}

}  // namespace
}  // namespace isoloss::studies
