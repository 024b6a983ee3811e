#include "isoloss/gate/looks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "judged_runs.h"
#include "sample_evidence.h"
#include "support/temporary_folder.h"

namespace isoloss::gate::looks_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int64_t> Seeds(int64_t count) {
  std::vector<int64_t> seeds(static_cast<size_t>(count));
  std::iota(seeds.begin(), seeds.end(), 1);
  return seeds;
}

LookRecord Record(std::vector<int64_t> planned,
                  const std::vector<int64_t>& taken) {
  LookRecord record{.experiment = "demo",
                    .config_digest = "00ff",
                    .corpus_digest = "0102",
                    .baseline_arm = "bf16",
                    .arms = {{"bf16", "aa"}, {"mxfp8", "bb"}},
                    .planned = std::move(planned)};
  for (const int64_t pairs : taken) {
    record.looks.push_back({.seeds = Seeds(pairs),
                            .policy_digest = PolicyDigest({}),
                            .nominal_alpha = 0.01,
                            .outcomes = {{"mxfp8", "INCONCLUSIVE"}}});
  }
  return record;
}

TEST(LooksAt, TheOnlyLookHasAllOfAlpha) {
  for (const auto& record : {Record({}, {}), Record({4}, {})}) {
    const Looks looks = LooksAt(record, Seeds(4), {});
    EXPECT_EQ(looks.NominalAlpha({}), 0.05);
    EXPECT_THAT(looks.planned, ::testing::ElementsAre(4));
    EXPECT_THAT(looks.note, IsEmpty());
    EXPECT_FALSE(looks.MayGoOn());
  }
}

TEST(LooksAt, PlannedLooksShareAlpha) {
  const LookRecord record = Record({4, 8, 12}, {4, 8});
  const Looks looks = LooksAt(record, Seeds(12), {});

  ASSERT_EQ(looks.taken.size(), 3u);
  EXPECT_EQ(looks.taken[1].pairs, 8);
  // Of group_sequential_coverage_test: all looks together pass with 5 %.
  EXPECT_NEAR(looks.taken[0].nominal_alpha, 0.00069, 1e-5);
  EXPECT_NEAR(looks.taken[1].nominal_alpha, 0.0159, 1e-4);
  EXPECT_NEAR(looks.NominalAlpha({}), 0.0429, 1e-4);
  EXPECT_TRUE(LooksAt(record, Seeds(10), {}).MayGoOn());
}

TEST(LooksAt, ALookAtTheSameSeedsIsTheSameLook) {
  const LookRecord record = Record({4, 8, 12}, {4, 8});
  for (const int64_t pairs : {4, 8}) {
    const Looks again = LooksAt(record, Seeds(pairs), {});
    const Looks first =
        LooksAt(Record({4, 8, 12}, pairs == 4 ? std::vector<int64_t>{}
                                              : std::vector<int64_t>{4}),
                Seeds(pairs), {});
    EXPECT_EQ(again.NominalAlpha({}), first.NominalAlpha({}));
    EXPECT_EQ(again.taken.size(), first.taken.size());
  }
}

TEST(LooksAt, AnUnplannedLookSpendsWhatIsDueAndSaysSo) {
  const Looks within = LooksAt(Record({4, 8, 12}, {4}), Seeds(6), {});
  EXPECT_GT(within.NominalAlpha({}), 0.0);
  EXPECT_LT(within.NominalAlpha({}), 0.0159);
  EXPECT_THAT(within.note, HasSubstr("none was planned at 6 pairs"));

  const Looks behind = LooksAt(Record({4}, {4}), Seeds(8), {});
  EXPECT_EQ(behind.NominalAlpha({}), 0);
}

TEST(LooksAt, SeedsChosenAfterALookGetNothing) {
  const LookRecord record = Record({4, 8}, {4});
  for (const std::vector<int64_t>& seeds :
       {std::vector<int64_t>{1, 2, 4}, {2, 3, 4, 5, 6, 7, 8, 9}}) {
    const Looks looks = LooksAt(record, seeds, {});
    EXPECT_EQ(looks.NominalAlpha({}), 0);
    EXPECT_THAT(looks.note, HasSubstr("not all of look 1"));
  }
}

TEST(LooksAt, SaysThatALookHadAnotherPolicy) {
  Policy other;
  other.margin_percent = 1;
  EXPECT_THAT(LooksAt(Record({4, 8}, {4}), Seeds(8), other).note,
              HasSubstr("look 1 had another policy"));
  EXPECT_THAT(LooksAt(Record({4, 8}, {4}), Seeds(4), other).note,
              HasSubstr("this look was first taken with another policy"));
}

TEST(LookRecord, IsReadAsItWasWritten) {
  const test_support::TemporaryFolder folder;
  const auto file = folder.path() / kLooksFile;
  const LookRecord record = Record({4, 8, 12}, {4, 8});

  WriteLooks(record, file);

  EXPECT_EQ(ReadLooks(file), record);
}

TEST(LookRecord, RefusesWhatItDidNotWrite) {
  const test_support::TemporaryFolder folder;
  const auto file = folder.path() / kLooksFile;
  WriteLooks(Record({4, 8, 12}, {4, 8}), file);
  const std::string text = ReadTextFile(file, "");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    std::ofstream(file) << other;
  };
  const std::pair<const char*, const char*> edits[] = {
      {"demo", "dem0"},
      {"\"planned\"", "\"plan\""},
      {"INCONCLUSIVE", "PASS"},
      {"\"schema_version\": 1", "\"schema_version\": 2"},
      {"0.01", "\"0.01\""},
      {"\"looks\": [", "\"looks\": [ 7,"},
      {"\"seeds\": [", "\"seeds\": [ 3,"},
      {"{", "["}};
  for (const auto& [from, to] : edits) {
    changed(from, to);
    EXPECT_THROW(ReadLooks(file), Error) << from;
  }
  std::ofstream(file) << std::string(2 << 20, ' ');
  EXPECT_THROW(ReadLooks(file), Error);
}

// With a digest of its own, so that nothing but the order is wrong.
TEST(LookRecord, RefusesLooksThatDoNotGrow) {
  const test_support::TemporaryFolder folder;
  const auto file = folder.path() / kLooksFile;
  for (const auto& record : {Record({4, 8}, {8, 4}), Record({4, 8}, {4, 4}),
                             Record({8, 4}, {}), Record({}, {4})}) {
    WriteLooks(record, file);
    EXPECT_THROW(ReadLooks(file), Error);
  }
}

TEST(ExperimentDifference, NamesWhatDiffers) {
  const LookRecord record = Record({4}, {});
  LookRecord other = record;
  other.arms["third"] = "cc";
  EXPECT_THAT(ExperimentDifference(record, other), IsEmpty());
  other.arms["mxfp8"] = "dd";
  EXPECT_THAT(ExperimentDifference(record, other), HasSubstr("arm mxfp8"));
  other = record;
  other.corpus_digest = "99";
  EXPECT_THAT(ExperimentDifference(record, other),
              HasSubstr("corpus_digest is 0102, here 99"));
}

// ---- level L5 --------------------------------------------------------------

Judgement JudgedAt(const LookRecord& record, int seeds) {
  const TwoArms arms(seeds);
  const compare::Pairing pairing = arms.Pair();
  const Looks looks = LooksAt(record, Seeds(seeds), {});
  return Judge({.pairing = &pairing, .looks = &looks}, {});
}

TEST(FinalWindowLevel, TestsAtTheLevelOfTheLook) {
  const Judgement only = JudgedAt(Record({}, {}), 4);
  const Judgement first = JudgedAt(Record({4, 8}, {}), 4);
  const TwoArms arms(4);
  const compare::Pairing pairing = arms.Pair();
  const Judgement plain = Judge({.pairing = &pairing}, {});

  const Check& check = CheckNamed(only, "final_window");
  const Check& today = CheckNamed(plain, "final_window");
  EXPECT_EQ(check.outcome, today.outcome);
  EXPECT_EQ(check.lower, today.lower);
  EXPECT_EQ(check.upper, today.upper);
  EXPECT_EQ(check.evidence, today.evidence);
  EXPECT_EQ(check.interval_level, 0.9);

  const Check& wider = CheckNamed(first, "final_window");
  EXPECT_LT(*wider.lower, *check.lower);
  EXPECT_GT(*wider.upper, *check.upper);
  EXPECT_DOUBLE_EQ(*wider.interval_level,
                   1 - 2 * first.looks->NominalAlpha({}));
}

TEST(FinalWindowLevel, DecidesNothingWithoutAlpha) {
  const Judgement judgement = JudgedAt(Record({2}, {2}), 4);

  for (const char* name : {"final_window", "held_out"}) {
    const Check& check = CheckNamed(judgement, name);
    EXPECT_EQ(check.outcome, Outcome::kInconclusive);
    EXPECT_FALSE(check.interval_level.has_value());
    EXPECT_THAT(check.evidence, HasSubstr("no alpha is left"));
    EXPECT_THAT(check.next, HasSubstr("were tested with all of alpha"));
    EXPECT_THAT(check.next, HasSubstr("--seeds 5 --looks "));
  }
  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
}

}  // namespace
}  // namespace isoloss::gate::looks_test
