#include "isoloss/logs/foreign_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/writer.h"
#include "support/foreign_runs.h"
#include "support/synthetic_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::logs::foreign_logs_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ForeignLogs : public ::testing::Test {
 protected:
  fs::path Write(const std::string& name, const std::string& text) const {
    const fs::path path = folder_.path() / name;
    std::ofstream(path) << text;
    return path;
  }
  /// "arm seed" of each run.
  static std::vector<std::string> Names(const std::vector<compare::Run>& runs) {
    std::vector<std::string> names;
    for (const compare::Run& run : runs) {
      const auto& p = run.log.provenance;
      names.push_back(p.arm + " " + std::to_string(p.seed));
    }
    return names;
  }
  static std::string ErrorOf(const std::vector<fs::path>& paths) {
    try {
      ReadRuns(paths);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  const std::string kTable = "step,loss\n1,3.5\n2,3.25\n";
  test_support::TemporaryFolder folder_;
};

TEST_F(ForeignLogs, AreToldByTheirContentAndName) {
  EXPECT_TRUE(IsForeignLog(Write("a.csv", kTable)));
  EXPECT_TRUE(IsForeignLog(Write("without", kTable)));
  // It says that it is one of ours, and must be read as such.
  EXPECT_FALSE(IsForeignLog(Write("damaged.h5", kTable)));
  EXPECT_FALSE(IsForeignLog(folder_.path() / "absent.csv"));
  EXPECT_FALSE(IsForeignLog(folder_.path()));
  runlog::WriteRunLog(test_support::SyntheticRun(false, 1, 0).log,
                      folder_.path() / "ours.h5");
  fs::rename(folder_.path() / "ours.h5", folder_.path() / "ours");
  EXPECT_FALSE(IsForeignLog(folder_.path() / "ours"));
}

TEST_F(ForeignLogs, AFolderOfEventFilesIsOne) {
  Write("events.out.tfevents.1.host", "");
  EXPECT_TRUE(IsForeignLog(folder_.path()));
  Write("bf16-seed1.h5", "");
  EXPECT_FALSE(IsForeignLog(folder_.path()));
}

TEST_F(ForeignLogs, HaveArmsAndSeedsByTheirNames) {
  EXPECT_THAT(Names(ReadRuns({Write("bf16-seed4.csv", kTable),
                              Write("fp8-seed4.csv", kTable)})),
              ElementsAre("bf16 4", "fp8 4"));
  EXPECT_THAT(Names(ReadRuns({Write("w.csv",
                                    "Step,bf16 - loss,bf16 - loss__MIN,"
                                    "bf16 - loss__MAX,fp8 - loss,"
                                    "fp8 - loss__MIN,fp8 - loss__MAX\n"
                                    "1,3.5,3.5,3.5,3.5,3.5,3.5\n"
                                    "2,3,3,3,3.25,3.25,3.25\n")})),
              ElementsAre("bf16 1", "fp8 1"));
}

TEST_F(ForeignLogs, CountSeedsWhereNamesTellNone) {
  const fs::path a = Write("a.csv", kTable);
  const fs::path b = Write("b.csv", kTable);
  EXPECT_THAT(Names(ReadRuns({"x=" + a.string(), "x=" + b.string(),
                              "y=" + a.string(), "y=" + b.string()})),
              ElementsAre("x 1", "x 2", "y 1", "y 2"));
}

TEST_F(ForeignLogs, KeepTheArmOfOurOwn) {
  runlog::WriteRunLog(test_support::SyntheticRun(false, 1, 0).log,
                      folder_.path() / "ours.h5");
  EXPECT_THAT(ErrorOf({"x=" + (folder_.path() / "ours.h5").string()}),
              HasSubstr("tell their own"));
}

TEST_F(ForeignLogs, NameTheFileOfWhatIsWrong) {
  const fs::path path = Write("m.csv", "step,accuracy\n1,0.5\n");
  EXPECT_THAT(ErrorOf({path}), HasSubstr(path.string()));
}

TEST_F(ForeignLogs, OfOneArmEachAreJudgedAgainstEachOther) {
  std::vector<compare::Run> runs = {test_support::ForeignRunOf("new", 1, 0)};
  std::vector<compare::Run> approved = {
      test_support::ForeignRunOf("old", 5, 0)};
  AlignForeignRuns(runs, approved, {});
  EXPECT_THAT(Names(runs), ElementsAre("new 5"));
  EXPECT_THAT(Names(approved), ElementsAre("new 5"));
  ASSERT_THAT(runs[0].log.events, SizeIs(1));
  EXPECT_THAT(runs[0].log.events[0].text, HasSubstr("by its place"));
}

TEST_F(ForeignLogs, OfTheSameSeedsArePairedByThem) {
  std::vector<compare::Run> runs = {test_support::ForeignRunOf("new", 2, 0),
                                    test_support::ForeignRunOf("new", 1, 0)};
  std::vector<compare::Run> approved = {
      test_support::ForeignRunOf("old", 1, 0),
      test_support::ForeignRunOf("old", 2, 0)};
  AlignForeignRuns(runs, approved, {});
  EXPECT_THAT(Names(runs), ElementsAre("new 2", "new 1"));
}

TEST_F(ForeignLogs, WithoutStepsAreRefused) {
  std::vector<compare::Run> runs = {test_support::ForeignRunOf("new", 2, 0)};
  runs[0].log.steps = {};
  EXPECT_THROW(AlignForeignRuns(runs, {}, {}), Error);
  runs = {test_support::ForeignRunOf("new", 2, 0)};
  runs[0].log.steps.grad_norm.pop_back();
  EXPECT_THROW(AlignForeignRuns(runs, {}, {}), Error);
}

TEST_F(ForeignLogs, MakeAnEnsembleThatReadsBack) {
  const runlog::Ensemble ensemble =
      EnsembleOfLogs({test_support::ForeignRunOf("bf16", 1, 0, 10),
                      test_support::ForeignRunOf("bf16", 2, 0, 10),
                      test_support::ForeignRunOf("bf16", 3, 0, 10)},
                     {});
  const fs::path path = folder_.path() / "good.h5";
  runlog::WriteEnsemble(ensemble, path);
  const runlog::Ensemble read = runlog::ReadEnsemble(path);
  EXPECT_EQ(read.provenance.origin.format, "torchtitan");
  ASSERT_THAT(read.members, SizeIs(2));
  EXPECT_EQ(read.members[1].steps.loss_nats,
            ensemble.members[1].steps.loss_nats);
  EXPECT_THAT(runlog::CheckDomains(read), SizeIs(0));

  EvidenceFiles evidence;
  evidence.ensembles.push_back({"good.h5", read});
  const std::vector<compare::Run> judged = {
      test_support::ForeignRunOf("candidate", 9, 0, 10)};
  const std::vector<compare::Run> approved = ApprovedOf(judged, evidence);
  ASSERT_THAT(approved, SizeIs(1));
  EXPECT_EQ(approved[0].log.steps.loss_nats,
            ensemble.members[0].reference_steps.loss_nats);
}

TEST_F(ForeignLogs, OfBadRunsMakeNoEnsemble) {
  const auto refused = [](std::vector<compare::Run> runs) {
    try {
      EnsembleOfLogs(std::move(runs), {});
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const compare::Run good = test_support::ForeignRunOf("bf16", 1, 0);
  const compare::Run other = test_support::ForeignRunOf("bf16", 2, 0);
  EXPECT_THAT(refused({good, other}), HasSubstr("show no spread"));
  EXPECT_THAT(refused({good, other, good}), HasSubstr("of their own"));
  EXPECT_THAT(refused({good, other, test_support::SyntheticRun(false, 1, 0)}),
              HasSubstr("isoloss itself"));
  compare::Run nan = test_support::ForeignRunOf("bf16", 2, 0);
  nan.log.steps.loss_nats[3] = std::nan("");
  EXPECT_THAT(refused({good, other, nan}), HasSubstr("not finite"));
  compare::Run cut = test_support::ForeignRunOf("bf16", 3, 0);
  cut.log.steps.step.resize(40);
  cut.log.steps.loss_nats.resize(40);
  cut.log.steps.grad_norm.resize(40);
  EXPECT_THAT(refused({good, other, cut}), HasSubstr("--until 40"));
  compare::Run means = test_support::ForeignRunOf("bf16", 4, 0);
  means.log.provenance.origin.loss_values =
      static_cast<int64_t>(runlog::LossValues::kOfInterval);
  EXPECT_THAT(refused({good, other, means}), HasSubstr("logged alike"));
}

}  // namespace
}  // namespace isoloss::logs::foreign_logs_test
