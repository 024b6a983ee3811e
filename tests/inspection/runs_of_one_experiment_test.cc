// What is done with logs that are there: comparing, zooming, exporting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "campaign/tiny_experiment.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/inspection/export_tables.h"
#include "isoloss/inspection/log_comparison.h"
#include "isoloss/inspection/zoom.h"
#include "isoloss/logs/log_files.h"
#include "support/temporary_folder.h"

namespace isoloss::inspection::runs_of_one_experiment_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// Trains both arms with seed 1, once for all tests.
class RunsOfOneExperiment : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test_support::TemporaryFolder;
    const train::Experiment experiment =
        campaign::TinyExperiment(folder_->path(), {"train.seeds=[1]"});
    campaign::TrainArms(experiment, campaign::PlanTraining(experiment), Logs(),
                        {.quiet = true});
    runs_ = new std::vector<compare::Run>(logs::ReadRuns({Logs()}));
  }
  static void TearDownTestSuite() {
    delete runs_;
    delete folder_;
  }
  static fs::path Logs() { return folder_->path() / "logs"; }
  static LogComparison BothArms() {
    return CompareLogs((*runs_)[0], (*runs_)[1], {});
  }
  static ZoomPlan Plan() {
    return {.source = {(folder_->path() / "tiny.toml").string(),
                       {"train.seeds=[1]"}},
            .out = folder_->path() / "zoom"};
  }

  static test_support::TemporaryFolder* folder_;
  static std::vector<compare::Run>* runs_;
};
test_support::TemporaryFolder* RunsOfOneExperiment::folder_ = nullptr;
std::vector<compare::Run>* RunsOfOneExperiment::runs_ = nullptr;

TEST_F(RunsOfOneExperiment, ALogEqualsItself) {
  const compare::Run& run = runs_->front();

  const LogComparison comparison = CompareLogs(run, run, {});

  EXPECT_TRUE(comparison.Equal());
  EXPECT_EQ(comparison.steps, 8);
  EXPECT_FALSE(comparison.curves.has_value());
}

TEST_F(RunsOfOneExperiment, TwoArmsPartInTheFirstStep) {
  const LogComparison comparison = BothArms();

  EXPECT_FALSE(comparison.Equal());
  EXPECT_TRUE(comparison.OneExperiment());
  ASSERT_TRUE(comparison.report.first.has_value());
  EXPECT_EQ(comparison.report.first->step, 1);
  EXPECT_THAT(RenderComparison(comparison), HasSubstr("step 1"));
  EXPECT_FALSE(ComparisonJson(comparison).empty());
}

TEST_F(RunsOfOneExperiment, RecipesOfOneNameThatDifferAreNamed) {
  constexpr const char* kSaid = "but the recipes differ";
  compare::Run other = (*runs_)[0];
  EXPECT_THAT(RenderComparison(CompareLogs((*runs_)[0], other, {})),
              Not(HasSubstr(kSaid)));

  other.log.provenance.graph.recipe.fprop_x.front() = "e2m1·floor";

  EXPECT_THAT(RenderComparison(CompareLogs((*runs_)[0], other, {})),
              HasSubstr(kSaid));
}

TEST_F(RunsOfOneExperiment, FoldersArePairedByArmAndSeed) {
  const PairedFolders pairs = PairFolders(Logs(), Logs(), {});

  EXPECT_THAT(pairs.pairs, SizeIs(2));
  EXPECT_TRUE(pairs.Equal());
}

TEST_F(RunsOfOneExperiment, ZoomingDumpsBothSidesOfTheFirstDifference) {
  const auto dumps = DumpBothSides(BothArms(), Plan());

  ASSERT_TRUE(dumps.has_value());
  EXPECT_TRUE(fs::exists(dumps->first));
  EXPECT_TRUE(fs::exists(dumps->second));
  EXPECT_NE(dumps->first, dumps->second);
}

TEST_F(RunsOfOneExperiment, ZoomingRefusesToWorkWhereALogLies) {
  ZoomPlan plan = Plan();
  plan.out = Logs();
  fs::create_directory_symlink(Logs(), Logs() / "A");

  try {
    DumpBothSides(BothArms(), plan);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("would be overwritten"));
  }
  fs::remove(Logs() / "A");
}

TEST_F(RunsOfOneExperiment, OneGroupBecomesOneFile) {
  const fs::path file = folder_->path() / "steps.csv";

  ExportLog({.log = runs_->front().file, .group = "steps", .out = file});

  EXPECT_THAT(ReadTextFile(file, "the table"), StartsWith("step[step],"));
}

TEST_F(RunsOfOneExperiment, ALogBecomesAFolderOfTables) {
  const fs::path folder = folder_->path() / "tables";

  ExportLog({.log = runs_->front().file,
             .format = runlog::ExportFormat::kJsonl,
             .out = folder});

  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  EXPECT_TRUE(names.contains("steps.jsonl"));
  EXPECT_TRUE(names.contains("eval.jsonl"));
}

TEST_F(RunsOfOneExperiment, SeveralLogsAreNoOneTable) {
  try {
    ExportLog({.log = Logs(), .group = "steps"});
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
  }
}

}  // namespace
}  // namespace isoloss::inspection::runs_of_one_experiment_test
