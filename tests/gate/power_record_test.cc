#include "isoloss/gate/power_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::gate {
namespace {

using ::testing::HasSubstr;

PowerRecord Sample() {
  return {.tool_version = "isoloss 0.1.0",
          .policy_digest = "00ff",
          .experiment = "golden_nano",
          .recipe = "mxfp8_rceil",
          .arm = "mxfp8",
          .ensemble_digests = {"e5"},
          .levels = {"L0", "L2"},
          .bugs = 41,
          .bugs_caught = 41,
          .benign_runs = 300,
          .false_alarms = 0};
}

std::string ErrorOfReading(const std::string& text) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "power.json";
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
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "power.json";

  WritePowerRecord(Sample(), path);

  EXPECT_EQ(ReadPowerRecord(path), Sample());
}

// k = n: the lower Clopper-Pearson end is 0.025^(1/41) = 0.91396; k = 0 of 300:
// the one-sided bound is 1 - 0.05^(1/300) = 0.0099362.
TEST(PowerRecord, SaysWhatWasMeasuredWithItsUncertainty) {
  EXPECT_EQ(Sample().Sentence(),
            "41 of 41 planted bugs caught in arm mxfp8 of golden_nano (95 % "
            "interval 91.4 to 100.0 %), 0 "
            "false alarms in 300 benign runs (rate below 0.99 % at 95 %)");
}

/// What WritePowerRecord makes of Sample().
std::string SampleText() {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "power.json";
  WritePowerRecord(Sample(), path);
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string ErrorOfReplacing(const std::string& from, const std::string& to) {
  std::string text = SampleText();
  text.replace(text.find(from), from.size(), to);
  return ErrorOfReading(text);
}

TEST(PowerRecord, NamesTheKeyOfDamage) {
  EXPECT_THAT(ErrorOfReading("nonsense"), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOfReplacing("sion\": 2", "sion\": 1"),
              HasSubstr("schema_version"));
  EXPECT_THAT(ErrorOfReplacing("\"bugs\": 41", "\"bugs\": 4.5"),
              HasSubstr("key bugs is missing or of another type"));
  EXPECT_THAT(ErrorOfReplacing("\"L0\"", "0"), HasSubstr("key levels"));
  EXPECT_THAT(ErrorOfReplacing("caught\": 41", "caught\": 42"),
              HasSubstr("bugs_caught is 42 and bugs is 41"));
  EXPECT_THAT(ErrorOfReplacing("runs\": 300", "runs\": 0"),
              HasSubstr("benign_runs is 0"));
}

TEST(PowerRecord, RefusesFiguresThatWereEdited) {
  const std::pair<const char*, const char*> edits[] = {
      {"caught\": 41", "caught\": 40"},
      {"\"bugs\": 41", "\"bugs\": 42"},
      {"runs\": 300", "runs\": 3000"},
      {"alarms\": 0", "alarms\": 1"},
      {"\"00ff\"", "\"00fe\""},
      {"golden_nano", "golden_mini"},
      {"mxfp8_rceil", "mxfp8_floor"},
      {"\"L2\"", "\"L4\""},
      {"isoloss 0.1.0", "isoloss 0.1.1"},
      {"\"e5\"", "\"e6\""},
      {"\"digest\": \"", "\"digest\": \"0"},
      {"\"digest\"", "\"other\""}};
  for (const auto& [from, to] : edits) {
    EXPECT_THAT(ErrorOfReplacing(from, to), HasSubstr("it was edited")) << from;
  }
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
