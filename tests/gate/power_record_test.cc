#include "isoloss/gate/power_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"

namespace isoloss::gate {
namespace {

using ::testing::HasSubstr;

PowerRecord Sample() {
  return {.tool_version = "isoloss 0.1.0",
          .policy_digest = "00ff",
          .experiment = "golden_nano",
          .recipe = "mxfp8_rceil",
          .arm = "mxfp8",
          .levels = {"L0", "L2"},
          .bugs = 41,
          .bugs_caught = 41,
          .benign_runs = 300,
          .false_alarms = 0};
}

std::string ErrorOfReading(const std::string& text) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "isoloss_bad_power.json";
  std::ofstream(path) << text;
  try {
    ReadPowerRecord(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    return error.what();
  }
  ADD_FAILURE() << "was read: " << text;
  return "";
}

TEST(PowerRecord, ReadsWhatWasWritten) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "isoloss_power.json";

  WritePowerRecord(Sample(), path);

  EXPECT_EQ(ReadPowerRecord(path), Sample());
  std::filesystem::remove(path);
}

// k = n: the lower Clopper-Pearson end is 0.025^(1/41) = 0.91396; k = 0 of 300:
// the one-sided bound is 1 - 0.05^(1/300) = 0.0099362.
TEST(PowerRecord, SaysWhatWasMeasuredWithItsUncertainty) {
  EXPECT_EQ(Sample().Sentence(),
            "41 of 41 planted bugs caught in arm mxfp8 of golden_nano (95 % "
            "interval 91.4 to 100.0 %), 0 "
            "false alarms in 300 benign runs (rate below 0.99 % at 95 %)");
}

TEST(PowerRecord, NamesTheKeyOfDamage) {
  const std::string good =
      R"({"schema_version": 1, "tool_version": "isoloss 0.1.0",)"
      R"("policy_digest": "00ff", "experiment": "e", "recipe": "r",)"
      R"("arm": "a", "levels": ["L0"], "bugs": 41,)"
      R"("bugs_caught": 41, "benign_runs": 300, "false_alarms": 0})";
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return ErrorOfReading(text);
  };

  EXPECT_THAT(ErrorOfReading("nonsense"), HasSubstr("no JSON object"));
  EXPECT_THAT(replaced("sion\": 1", "sion\": 2"), HasSubstr("schema_version"));
  EXPECT_THAT(replaced("\"bugs\": 41", "\"bugs\": 4.5"),
              HasSubstr("key bugs is missing or of another type"));
  EXPECT_THAT(replaced("[\"L0\"]", "[0]"), HasSubstr("key levels"));
  EXPECT_THAT(replaced("caught\": 41", "caught\": 42"),
              HasSubstr("bugs_caught is 42 and bugs is 41"));
  EXPECT_THAT(replaced("runs\": 300", "runs\": 0"),
              HasSubstr("benign_runs is 0"));
}

TEST(PowerRecord, SpeaksForItsRecipeOnly) {
  PowerRecord record = Sample();
  record.tool_version = "isoloss " + GetBuildInfo().version;
  record.policy_digest = PolicyDigest({});

  EXPECT_EQ(WhyNotApplicable(record, {}, "mxfp8_rceil", {"L0", "L2"}), "");
  EXPECT_EQ(WhyNotApplicable(record, {}, "nvfp4", {"L0", "L2"}),
            "it was measured with recipe mxfp8_rceil, this is nvfp4");
}

TEST(PolicyDigest, ChangesWithEveryLimit) {
  Policy policy;
  policy.null_coverage = 0.999;

  EXPECT_NE(PolicyDigest(policy), PolicyDigest({}));
  EXPECT_EQ(PolicyDigest({}), PolicyDigest({}));
}

}  // namespace
}  // namespace isoloss::gate
