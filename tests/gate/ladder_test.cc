#include "isoloss/gate/ladder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/base/text_file.h"
#include "judged_runs.h"
#include "sample_evidence.h"
#include "support/expect_refused.h"

namespace isoloss::gate::ladder_test {
namespace {

using ::testing::HasSubstr;

TEST(Ladder, ClimbsInOrder) {
  const Levels levels = Ladder();

  ASSERT_FALSE(levels.empty());
  for (size_t i = 0; i < levels.size(); ++i) {
    EXPECT_EQ(levels[i]->name, fmt::format("L{}", i));
    EXPECT_EQ(static_cast<size_t>(levels[i]->id), i);
    EXPECT_EQ(LevelName(levels[i]->id), levels[i]->name);
  }
}

TEST(Ladder, EachLevelHasARowOfItsQuestionInTheDocument) {
  const std::string document =
      ReadTextFile(ISOLOSS_SOURCE_DIR "/docs/gate.md", "the document", 1 << 20);

  for (const Level* level : Ladder()) {
    EXPECT_THAT(document, HasSubstr(fmt::format("\n| {} ", level->name)))
        << "docs/gate.md, section Levels, needs a row for this level";
    EXPECT_THAT(document, HasSubstr(fmt::format("| {} |", level->question)))
        << "of level " << level->name;
  }
}

LevelFindings FindNothing(const Evidence&, const Policy&) {
  return {.checks = {{.name = "mine", .outcome = Outcome::kPass}}};
}

LevelFindings FindFault(const Evidence&, const Policy&) {
  return {.checks = {{.name = "mine", .outcome = Outcome::kFail}}};
}

/// A level that a program brings along.
constexpr Level LevelThat(LevelFindings (*run)(const Evidence&,
                                               const Policy&)) {
  return {.id = LevelId::kFirstOther,
          .name = "mine",
          .question = "",
          .needs = Needs::kSoundRuns,
          .decides = Decides::kBoth,
          .run = run};
}

Judgement ClimbWith(const std::vector<const Level*>& own,
                    const Policy& policy = {}) {
  std::vector<const Level*> levels(Ladder().begin(), Ladder().end());
  levels.insert(levels.end(), own.begin(), own.end());
  const Runs runs = HealthyRuns();
  const compare::Pairing pairing =
      compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"), "mxfp8",
                          compare::RunsOfArm(runs, "mxfp8"));
  return Judge(Evidence{.pairing = &pairing}, policy, {.levels = levels});
}

TEST(Ladder, ALevelOfAnotherProgramIsClimbedAndNamesItsChecks) {
  const Level finds_nothing = LevelThat(&FindNothing);
  const Level finds_fault = LevelThat(&FindFault);

  const Judgement passed = ClimbWith({&finds_nothing});
  const Judgement failed = ClimbWith({&finds_fault});

  EXPECT_EQ(passed.outcome, Outcome::kPass);
  EXPECT_EQ(LevelOf(passed, "mine"), Outcome::kPass);
  EXPECT_EQ(failed.outcome, Outcome::kFail);
  EXPECT_EQ(failed.checks.back().level, "mine");
}

TEST(Ladder, ALevelOfAnotherProgramDecidesIfThePolicyListsIt) {
  const Level level = LevelThat(&FindNothing);
  Policy policy;
  policy.levels = {"mine"};

  const Judgement judgement = ClimbWith({&level}, policy);

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "mine"), Outcome::kPass);
  // Of precision it decides, listed or not.
  EXPECT_EQ(LevelOf(judgement, "L5"), Outcome::kPass);
}

TEST(Ladder, LevelsWithOneNameOrIdAreRefused) {
  const auto expect = [](const std::vector<const Level*>& own,
                         const std::string& words) {
    test_support::ExpectRefused([&] { ClimbWith(own); }, words);
  };
  const Level mine = LevelThat(&FindNothing);
  Level of_registered_name = mine;
  of_registered_name.name = "L3";
  Level of_registered_id = mine;
  of_registered_id.id = LevelId::l0_integrity;
  Level of_one_name = mine;
  of_one_name.id = LevelId{129};
  Level of_one_id = mine;
  of_one_id.name = "other";

  expect({&of_registered_name}, "the name `L3`");
  expect({&of_registered_id}, "the id 0");
  expect({&mine, &of_one_name}, "the name `mine`");
  expect({&mine, &of_one_id}, "the id 128");
  expect({&mine, &mine}, "the name `mine`");
}

TEST(LadderDeathTest, AnIdThatNoRegisteredLevelHasNamesNone) {
  EXPECT_DEATH(LevelName(LevelId::kFirstOther), "assertion");
}

TEST(Ladder, AListOfLevelsThatAreNotClimbedIsInconclusive) {
  const Runs runs = HealthyRuns();
  const compare::Pairing pairing =
      compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"), "mxfp8",
                          compare::RunsOfArm(runs, "mxfp8"));
  Policy policy;
  policy.levels = {"L5"};

  const Judgement judgement = Judge(Evidence{.pairing = &pairing}, policy,
                                    {.levels = Ladder().subspan(0, 2)});

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
}

}  // namespace
}  // namespace isoloss::gate::ladder_test
