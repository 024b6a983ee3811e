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
          .commit = "c0ffee",
          .policy_digest = "00ff",
          .experiment = "golden_nano",
          .config_digest = "cf",
          .parameters = 7,
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
  EXPECT_THAT(ErrorOfReplacing("sion\": 3", "sion\": 2"),
              HasSubstr("schema_version is 2, but this program reads 3"));
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
      {"c0ffee", "c0ffe0"},
      {"\"00ff\"", "\"00fe\""},
      {"\"cf\"", "\"cd\""},
      {"\"parameters\": 7", "\"parameters\": 8"},
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

TEST(PowerRecord, SpeaksForVerdictsOfItsKindOnly) {
  const PowerRecord record = Sample();
  const std::pair<std::string PowerRecord::*, const char*> texts[] = {
      {&PowerRecord::tool_version, "program isoloss 0.1.0, this is other"},
      {&PowerRecord::commit, "commit c0ffee, this is other"},
      {&PowerRecord::policy_digest, "policy 00ff, this is other"},
      {&PowerRecord::experiment, "experiment golden_nano, this is other"},
      {&PowerRecord::config_digest, "configuration cf, this is other"},
      {&PowerRecord::recipe, "recipe mxfp8_rceil, this is other"}};

  EXPECT_EQ(WhyNotApplicable(record, record), "");
  for (const auto& [field, words] : texts) {
    PowerRecord verdict = record;
    verdict.*field = "other";
    EXPECT_THAT(WhyNotApplicable(record, verdict), HasSubstr(words));
  }
  PowerRecord larger = record;
  larger.parameters = 8;
  EXPECT_THAT(WhyNotApplicable(record, larger),
              HasSubstr("number of parameters 7, this is 8"));
  PowerRecord other_null = record;
  other_null.ensemble_digests.clear();
  EXPECT_THAT(WhyNotApplicable(record, other_null),
              HasSubstr("ensemble e5, this is none"));
  PowerRecord fewer = record;
  fewer.levels = {"L0"};
  EXPECT_THAT(WhyNotApplicable(record, fewer),
              HasSubstr("evidence for L2, which this verdict lacks"));
}

TEST(PolicyDigest, ChangesWithEveryLimit) {
  Policy policy;
  policy.null_coverage = 0.999;

  EXPECT_NE(PolicyDigest(policy), PolicyDigest({}));
  EXPECT_EQ(PolicyDigest({}), PolicyDigest({}));
}

}  // namespace
}  // namespace isoloss::gate
