// Goldens of a tiny experiment: made, checked, spoilt. Lanes are executed by
// the program, so tests/cli/golden_test.py has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "../runlog/log_file.h"
#include "campaign/tiny_experiment.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/goldens/golden_check.h"
#include "isoloss/goldens/golden_folder.h"
#include "isoloss/goldens/golden_update.h"
#include "support/temporary_folder.h"

namespace isoloss::goldens::golden_round_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class GoldenRound : public ::testing::Test {
 protected:
  GoldenRound() {
    fs::create_directory(golden_);
    campaign::TinyExperiment(folder_.path(), {});
    std::string text =
        ReadTextFile(folder_.path() / "tiny.toml", "the experiment");
    const std::string seeds = "seeds = [1, 2]";
    text.replace(text.find(seeds), seeds.size(), "seeds = [1]");
    const std::string steps = "steps = 8";
    text.replace(text.find(steps), steps.size(), "steps = 2");
    // The oracle's other cases would take all of the time.
    std::ofstream(golden_ / kGoldenExperiment)
        << text << "[gate]\npolicy = \"../gate.toml\"\n";
    std::ofstream(folder_.path() / "gate.toml")
        << "probe_cases = [\"plain\"]\n";
  }
  GoldenUpdate Create() const {
    return UpdateGoldens({.folder = golden_,
                          .reason = "the first goldens of this experiment",
                          .create = true,
                          .draft = true});
  }
  CheckedGoldens Check() const {
    GoldenCheckPlan plan;
    plan.folders = {golden_};
    plan.draft = true;
    CheckedGoldens found;
    EXPECT_TRUE(CheckGoldens(
        plan, [&](const CheckedGoldens& checked) { found = checked; }));
    return found;
  }

  test_support::TemporaryFolder folder_;
  const fs::path golden_ = folder_.path() / "golden";
};

TEST_F(GoldenRound, WhatIsMadeIsReproduced) {
  const GoldenUpdate update = Create();
  ASSERT_EQ(update.refused, "");
  EXPECT_EQ(update.runs, 2);

  const CheckedGoldens found = Check();

  EXPECT_EQ(found.code, system::ExitCode::kPass);
  EXPECT_FALSE(found.drift);
  EXPECT_THAT(found.exact, SizeIs(2));
}

TEST_F(GoldenRound, WhatTheFileHasLostFailsUntilTheGoldenLacksIt) {
  ASSERT_EQ(Create().refused, "");
  const fs::path log = golden_ / "mxfp8-seed1.h5";
  test_support::EditWithHdf5(log, [](const hdf5::Handle& file) {
    const auto dataset = test_support::OpenDataset(file, "/steps/loss_nats");
    hdf5::WriteAttribute(dataset, "once", int64_t{1});
  });
  test_support::WriteBytes(log, test_support::Sealed(test_support::Bytes(log)));

  const CheckedGoldens found = Check();

  EXPECT_FALSE(found.drift);
  EXPECT_EQ(found.code, system::ExitCode::kFail);
  ASSERT_THAT(found.statistical, SizeIs(2));
  EXPECT_EQ(found.statistical[0].outcome, gate::Outcome::kPass);
  EXPECT_EQ(found.statistical[1].outcome, gate::Outcome::kFail);
  EXPECT_THAT(found.statistical[1].levels,
              HasSubstr("mxfp8-seed1 does not have what the golden's file has: "
                        "/steps/loss_nats@once"));

  const GoldenUpdate update =
      UpdateGoldens({.folder = golden_,
                     .reason = "the attribute was of no use",
                     .draft = true});
  EXPECT_EQ(update.refused, "");
  EXPECT_EQ(Check().code, system::ExitCode::kPass);
}

TEST_F(GoldenRound, AnEditedTwinIsRefusedBeforeAnythingIsTrained) {
  ASSERT_EQ(Create().refused, "");
  std::ofstream(golden_ / "bf16-seed1.txt", std::ios::app) << "a line more\n";

  try {
    Check();
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("bf16-seed1"));
  }
}

}  // namespace
}  // namespace isoloss::goldens::golden_round_test
