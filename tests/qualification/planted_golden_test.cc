// `golden check` tells harmless drift from a bug.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>

#include "campaign/tiny_experiment.h"
#include "isoloss/goldens/golden_check.h"
#include "isoloss/goldens/golden_ci.h"
#include "isoloss/goldens/golden_update.h"
#include "qualification/mutant.h"
#include "support/temporary_folder.h"

namespace isoloss::qualification::planted_golden_test {
namespace {

using goldens::CheckedGoldens;
using system::ExitCode;

class PlantedGolden : public ::testing::Test {
 protected:
  PlantedGolden() {
    std::filesystem::create_directory(golden_);
    std::string text = campaign::kTinyExperiment;
    for (const auto& [long_one, short_one] :
         {std::pair<std::string, std::string>{"seeds = [1, 2]", "seeds = [1]"},
          {"steps = 8", "steps = 2"}}) {
      text.replace(text.find(long_one), long_one.size(), short_one);
    }
    std::ofstream(golden_ / "experiment.toml")
        << text << "[gate]\npolicy = \"../gate.toml\"\n";
    // The oracle's other cases would take most of the time.
    std::ofstream(folder_.path() / "gate.toml")
        << "probe_cases = [\"plain\"]\n";
    const goldens::GoldenUpdate update = goldens::UpdateGoldens(
        {.folder = golden_,
         .reason = "the first goldens of this experiment",
         .create = true,
         .draft = true});
    EXPECT_EQ(update.refused, "");
  }

  CheckedGoldens Check(const Mutant& mutant) const {
    goldens::GoldenCheckPlan plan;
    plan.folders = {golden_};
    plan.draft = true;
    plan.plant = [&mutant](const train::Experiment& experiment,
                           const train::Arm& arm, uint64_t seed) {
      return Plant(mutant, experiment, arm, seed);
    };
    CheckedGoldens found;
    EXPECT_TRUE(goldens::CheckGoldens(
        plan, [&](const CheckedGoldens& checked) { found = checked; }));
    return found;
  }

  isoloss::test_support::TemporaryFolder folder_;
  const std::filesystem::path golden_ = folder_.path() / "golden";
};

TEST_F(PlantedGolden, ABugDriftsAndFails) {
  const CheckedGoldens found = Check(MutantByName("scale_floor"));

  EXPECT_TRUE(found.drift);
  EXPECT_EQ(found.code, ExitCode::kFail);
}

TEST_F(PlantedGolden, ABenignChangeDriftsAndPassesUnlessBitsAreAskedFor) {
  const CheckedGoldens found = Check(BenignMutant(3));

  EXPECT_TRUE(found.drift);
  EXPECT_EQ(found.code, ExitCode::kPass);
  EXPECT_EQ(goldens::CodeOf(found, /*exact=*/true), ExitCode::kFail);
}

}  // namespace
}  // namespace isoloss::qualification::planted_golden_test
