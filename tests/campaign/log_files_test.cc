#include "isoloss/campaign/log_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "isoloss/base/error.h"
#include "isoloss/runlog/writer.h"
#include "support/synthetic_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::campaign {
namespace {

using ::testing::ElementsAre;

class LogFiles : public ::testing::Test {
 protected:
  void WriteRun(const std::string& name) const {
    runlog::WriteRunLog(testing::SyntheticRun(false, 1, 0).log,
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

  testing::TemporaryFolder folder_;
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

}  // namespace
}  // namespace isoloss::campaign
