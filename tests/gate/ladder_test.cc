#include "isoloss/gate/ladder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/base/text_file.h"
#include "judged_runs.h"
#include "sample_evidence.h"

namespace isoloss::gate {
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

void FindNothing(const Evidence&, Judgement& judgement) {
  judgement.checks.push_back({.name = "mine", .outcome = Outcome::kPass});
}

void FindFault(const Evidence&, Judgement& judgement) {
  judgement.checks.push_back({.name = "mine", .outcome = Outcome::kFail});
}

/// A level that a program brings along.
constexpr Level LevelThat(void (*run)(const Evidence&, Judgement&)) {
  return {.id = LevelId::kFirstOther,
          .name = "mine",
          .question = "",
          .needs = Needs::kSoundRuns,
          .decides = Decides::kBoth,
          .run = run};
}

Judgement ClimbWith(const Level& level) {
  std::vector<const Level*> levels(Ladder().begin(), Ladder().end());
  levels.push_back(&level);
  const Runs runs = HealthyRuns();
  const compare::Pairing pairing =
      compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"), "mxfp8",
                          compare::RunsOfArm(runs, "mxfp8"));
  return Judge(Evidence{.pairing = &pairing}, Policy{}, {.levels = levels});
}

TEST(Ladder, ALevelOfAnotherProgramIsClimbedAndNamesItsChecks) {
  const Judgement passed = ClimbWith(LevelThat(&FindNothing));
  const Judgement failed = ClimbWith(LevelThat(&FindFault));

  EXPECT_EQ(passed.outcome, Outcome::kPass);
  EXPECT_EQ(LevelOf(passed, "mine"), Outcome::kPass);
  EXPECT_EQ(failed.outcome, Outcome::kFail);
  EXPECT_EQ(failed.checks.back().level, "mine");
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
}  // namespace isoloss::gate
