#include "isoloss/studies/plan.h"

#include <gtest/gtest.h>

#include <fstream>

#include "../campaign/tiny_experiment.h"
#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::studies::plan_test {
namespace {

class PlanTest : public ::testing::Test {
 protected:
  Plan TwoCells(const std::string& folder) {
    Plan plan{.kind = "ladder",
              .folder = folder_.path() / folder,
              .cells = {},
              .text = "study = \"ladder\"\n"};
    for (const char* name : {"a", "b"}) {
      plan.cells.push_back(
          {.name = name,
           .experiment = campaign::TinyExperiment(folder_.path()),
           .hooks = {},
           .seconds = 1});
    }
    plan.cells[1].experiment.train.lr *= 2;
    return plan;
  }

  test_support::TemporaryFolder folder_;
};

/// Losses of a cell's runs, run by run, in the order of their names.
std::vector<std::vector<float>> Losses(const Plan& plan, size_t cell) {
  std::vector<std::vector<float>> losses;
  for (const compare::Run& run : RunsOf(plan, plan.cells[cell])) {
    const auto& values = run.log.steps.loss_nats;
    losses.emplace_back(values.begin(), values.end());
  }
  return losses;
}

TEST_F(PlanTest, PartsTrainWhatTheWholeDoes) {
  const Plan whole = TwoCells("whole");
  PrepareFolder(whole);
  ASSERT_TRUE(Train(whole));
  const Plan shared = TwoCells("shared");
  PrepareFolder(shared);
  ASSERT_TRUE(Train(shared, {.index = 2, .count = 2}));
  EXPECT_EQ(RunsOf(shared, shared.cells[0]).size(), 2u);  // arms of one seed
  ASSERT_TRUE(Train(shared, {.index = 1, .count = 2}));

  for (const size_t cell : {0, 1}) {
    EXPECT_EQ(Losses(whole, cell).size(), 4u);
    EXPECT_EQ(Losses(whole, cell), Losses(shared, cell));
  }
  EXPECT_NE(Losses(whole, 0), Losses(whole, 1));
}

TEST_F(PlanTest, RefusesMorePartsThanSeeds) {
  const Plan plan = TwoCells("parts");
  EXPECT_THROW(PrepareFolder(plan, {.index = 1, .count = 3}), Error);
  EXPECT_FALSE(std::filesystem::exists(plan.folder));
}

TEST_F(PlanTest, AFolderHoldsOneStudy) {
  Plan plan = TwoCells("folder");
  PrepareFolder(plan);
  EXPECT_NO_THROW(PrepareFolder(plan));
  plan.text = "study = \"stress\"\n";
  EXPECT_THROW(PrepareFolder(plan), Error);
}

TEST_F(PlanTest, AFolderOfOtherFilesIsLeftAlone) {
  const Plan plan = TwoCells("mine");
  std::filesystem::create_directories(plan.folder);
  std::ofstream(plan.folder / "notes") << "mine";
  EXPECT_THROW(PrepareFolder(plan), Error);
  EXPECT_FALSE(std::filesystem::exists(plan.folder / "cells"));
}

TEST_F(PlanTest, CostsWhatIsLeft) {
  Plan plan = TwoCells("cost");
  plan.cells[0].seconds = 240;
  plan.cells[1].seconds = 12;
  EXPECT_EQ(CostText(plan, plan.cells[0]), "4.0 min");
  EXPECT_EQ(CostText(plan, plan.cells[1]), "12 s");
  EXPECT_EQ(CostText(plan), "4.2 min");

  PrepareFolder(plan);
  ASSERT_TRUE(Train(plan, {.index = 1, .count = 2}));
  EXPECT_EQ(CostText(plan, plan.cells[0]), "2.0 min left of 4.0 min");
  EXPECT_EQ(CostText(plan, plan.cells[1]), "6 s left of 12 s");
  ASSERT_TRUE(Train(plan, {.index = 2, .count = 2}));
  EXPECT_EQ(CostText(plan, plan.cells[1]), "done");
  EXPECT_EQ(CostText(plan), "done");
}

TEST(ConsecutiveSeeds, BeginWithTheFirstOfTheExperiment) {
  train::Experiment experiment;
  experiment.train.seeds = {7, 2};
  EXPECT_EQ(ConsecutiveSeeds(experiment, 3), (std::vector<uint64_t>{7, 8, 9}));
}

TEST(ParsePart, ReadsShares) {
  EXPECT_EQ(ParsePart("2/4").index, 2u);
  EXPECT_EQ(ParsePart("2/4").count, 4u);
  for (const char* text : {"", "2", "0/4", "5/4", "1/", "1/4x", "-1/4", "/"}) {
    EXPECT_THROW(ParsePart(text), Error) << text;
  }
}

}  // namespace
}  // namespace isoloss::studies::plan_test
