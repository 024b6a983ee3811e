#include "isoloss/gate/check_titles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "isoloss/base/text_file.h"
#include "isoloss/compare/integrity.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate::check_titles_test {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

/// The ids in the source of the gate, wherever a check gets its name: in an
/// initialiser, or as the argument of a function that makes one.
std::set<std::string> IdsInTheSource() {
  const std::regex made(
      R"re(\.name = "([a-z_]+)")re"
      R"re(|\b(?:CheckOf|NewCheck|EvidenceCheck|JudgeAgainstNull|NotJudged)re"
      R"re(|Showing|Inconclusive)\(\s*"([a-z_]+)")re");
  std::set<std::string> ids;
  for (const auto& file : std::filesystem::directory_iterator(
           ISOLOSS_SOURCE_DIR "/lib/isoloss/gate")) {
    if (file.path().extension() != ".cc") continue;
    const std::string text =
        ReadTextFile(file.path(), "the source", size_t{1} << 20);
    for (std::sregex_iterator at(text.begin(), text.end(), made), end;
         at != end; ++at) {
      ids.insert((*at)[(*at)[1].matched ? 1 : 2]);
    }
  }
  for (const compare::IntegrityRule& rule : compare::IntegrityRules()) {
    ids.emplace(rule.name);
  }
  return ids;
}

TEST(CheckTitles, NameEveryCheckOfTheGateAndNothingElse) {
  std::set<std::string> titled;
  std::set<std::string_view> titles;
  for (const CheckTitle& title : CheckTitles()) {
    titled.emplace(title.id);
    EXPECT_TRUE(titles.insert(title.title).second)
        << title.title << " is the title of two checks";
  }

  EXPECT_EQ(titled, IdsInTheSource())
      << "give each check a line of lib/isoloss/gate/check_titles.def";
}

TEST(CheckTitles, NameEveryLevel) {
  for (const Level* level : Ladder()) {
    EXPECT_THAT(level->title, Not(IsEmpty())) << level->name;
    EXPECT_EQ(LevelTitle(level->id), level->title);
  }
}

TEST(CheckTitles, OfOtherProgramsAreTheirIds) {
  Check own{.name = "last_loss_of_all"};
  Entitle("X1", own);

  EXPECT_EQ(own.level, "X1");
  EXPECT_EQ(own.title, "last loss of all");
  EXPECT_EQ(own.remedy, "");
}

TEST(CheckTitles, AreWrittenIntoChecks) {
  Check window{.name = "final_window"};
  Check course{.name = "trajectory", .subject = "loss of step 1"};
  Entitle("L5", window);
  Entitle("L5", course);

  EXPECT_EQ(window.title, "final loss");
  EXPECT_EQ(window.subject, "final loss");
  EXPECT_EQ(course.title, "course of training");
  EXPECT_EQ(course.subject, "loss of step 1");
}

TEST(CheckTitles, SayWhatToDoAboutAFailureThatDoesNotSayItself) {
  Check failed{.name = "seeds", .outcome = Outcome::kInvalid};
  Entitle("L0", failed);
  Check with_remedy = failed;
  with_remedy.next = "look here";
  Check passed = failed;
  passed.outcome = Outcome::kPass;

  EXPECT_TRUE(failed.WhatToDo().starts_with("give exactly one log"));
  EXPECT_EQ(with_remedy.WhatToDo(), "look here");
  EXPECT_EQ(passed.WhatToDo(), "");
}

}  // namespace
}  // namespace isoloss::gate::check_titles_test
