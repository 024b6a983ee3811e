#include "isoloss/logs/log_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/writer.h"
#include "support/synthetic_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::logs::log_files_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class LogFiles : public ::testing::Test {
 protected:
  void WriteRun(const std::string& name) const {
    runlog::WriteRunLog(test_support::SyntheticRun(false, 1, 0).log,
                        folder_.path() / name);
  }
  void WriteText(const std::string& name) const {
    std::ofstream(folder_.path() / name) << "no log";
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const compare::Run& run : ReadRuns({folder_.path()})) {
      names.push_back(std::filesystem::path(run.file).filename().string());
    }
    return names;
  }

  test_support::TemporaryFolder folder_;
};

TEST_F(LogFiles, AFolderStandsForItsRunLogs) {
  WriteRun("b-seed1.h5");
  WriteRun("a-seed1.h5");
  WriteRun("c-seed1.partial.h5");
  WriteRun(".hidden.h5");
  WriteText("a-seed1.probe.h5");
  WriteText("a-seed1.dump-000001.h5");
  WriteText("notes.txt");
  EXPECT_THAT(Names(), ElementsAre("a-seed1.h5", "b-seed1.h5"));
}

TEST_F(LogFiles, WhatIsDamagedIsNeverPassedOver) {
  WriteRun("a-seed1.h5");
  WriteText("b-seed1.h5");
  EXPECT_THROW(Names(), Error);
}

TEST_F(LogFiles, AFolderWithoutLogsIsAnError) {
  WriteRun("c-seed1.partial.h5");
  EXPECT_THROW(Names(), Error);
  EXPECT_THROW(ProbeFiles({folder_.path()}), Error);
  EXPECT_THROW(EnsembleFiles({folder_.path()}), Error);
}

TEST_F(LogFiles, ProbesOfAFolderAreItsOwnAndThoseBelow) {
  std::filesystem::create_directory(folder_.path() / kProbeFolder);
  WriteText("b-seed1.probe.h5");
  WriteText("probes/a-seed1.probe.h5");
  EXPECT_EQ(ProbeFiles({folder_.path()}).size(), 2);
  EXPECT_EQ(ProbeFiles({folder_.path() / "given.h5"}),
            std::vector{folder_.path() / "given.h5"});
}

TEST_F(LogFiles, WhatIsSaidOfAFileIsOneLine) {
  const auto read = [](const std::filesystem::path&) -> int {
    ThrowError(ErrorKind::kFormat, "two\nlines");
  };
  try {
    OnOneLine(read, "file");
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

/// `log` with a digest of one tensor, and a variance that none can have.
void AddTensors(runlog::RunLog& log) {
  log.tensors.step = {1};
  log.tensors.count = 1;
  log.tensors.names = {"w_weight"};
  log.tensors.digest = {7};
  log.tensors.statistics[runlog::kStat_variance] = {-1};
}

TEST_F(LogFiles, OfEachArmOneRunKeepsTensorsForPrecision) {
  for (const bool candidate : {false, true}) {
    for (const int64_t seed : {3, 1, 2}) {
      compare::Run run = test_support::SyntheticRun(candidate, seed, 0);
      AddTensors(run.log);
      runlog::WriteRunLog(run.log, folder_.path() / run.file);
    }
  }
  const auto whole = ReadRuns({folder_.path()});
  // The least seed comes last, and the one before has its tensors till then.
  std::vector<std::filesystem::path> paths;
  for (const char* name : {"bf16_seed3", "bf16_seed2", "bf16_seed1",
                           "mxfp8_seed2", "mxfp8_seed1", "mxfp8_seed3"}) {
    paths.push_back(folder_.path() / (std::string(name) + ".h5"));
  }

  const auto runs = ReadRuns(paths, {}, Keep::kForPrecision);

  std::vector<std::pair<std::string, int64_t>> kept;
  for (const compare::Run& run : runs) {
    const auto& p = run.log.provenance;
    if (!run.log.tensors.step.empty()) kept.emplace_back(p.arm, p.seed);
  }
  EXPECT_THAT(kept, UnorderedElementsAre(Pair("bf16", 1), Pair("mxfp8", 1)));
  ASSERT_EQ(runs.size(), whole.size());
  for (const compare::Run& run : runs) {
    const auto same = std::ranges::find(whole, run.file, &compare::Run::file);
    ASSERT_NE(same, whole.end());
    const auto found = runlog::CheckDomains(same->log);
    EXPECT_EQ(run.violations.has_value(), run.log.tensors.step.empty());
    if (!run.violations) continue;
    ASSERT_EQ(run.violations->size(), found.size());
    bool tells = false;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ((*run.violations)[i].message, found[i].message);
      tells = tells || found[i].message.find("variance") != std::string::npos;
    }
    EXPECT_TRUE(tells);
  }
}

}  // namespace
}  // namespace isoloss::logs::log_files_test
