#include "isoloss/gate/kill_matrix.h"

#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/base/error.h"

namespace isoloss::gate {
namespace {

/// Level 0 passes, level 1 says `one`, level 2 was not judged; the peer takes
/// it or not.
KillCell Cell(Outcome one, Outcome verdict, bool peer_accepts = true) {
  return {.levels = {Outcome::kPass, one, std::nullopt},
          .verdict = verdict,
          .peer_accepts = {peer_accepts}};
}

KillRow Row(MutantClass mutant_class, std::vector<KillCell> cells) {
  KillRow row;
  row.mutant_class = mutant_class;
  row.cells = std::move(cells);
  return row;
}

const KillCell kCaught = Cell(Outcome::kFail, Outcome::kFail, false);
const KillCell kMissed = Cell(Outcome::kPass, Outcome::kPass);

TEST(KillMatrix, ABugIsCaughtOnlyInEverySeed) {
  KillMatrix matrix{.levels = {"L0", "L1", "L2"}, .peers = {"peer"}};
  matrix.rows = {Row(MutantClass::kBug, {kCaught, kCaught}),
                 Row(MutantClass::kBug, {kCaught, kMissed}),
                 Row(MutantClass::kBug, {kMissed, kMissed})};

  EXPECT_EQ(matrix.Score().count, 1);
  EXPECT_EQ(matrix.Score().of, 3);
  EXPECT_EQ(matrix.ScoreOfLevel(0).count, 0);
  EXPECT_EQ(matrix.ScoreOfLevel(1).count, 1);
  EXPECT_EQ(matrix.ScoreOfLevel(2).count, 0);
  EXPECT_EQ(matrix.ScoreOfPeer(0).count, 1);
}

TEST(KillMatrix, InvalidStopsAJobTooAndInconclusiveDoesNot) {
  KillMatrix matrix;
  matrix.rows = {
      Row(MutantClass::kBug, {Cell(Outcome::kPass, Outcome::kInvalid)}),
      Row(MutantClass::kBug, {Cell(Outcome::kPass, Outcome::kInconclusive)})};

  EXPECT_EQ(matrix.Score().count, 1);
}

TEST(KillMatrix, OnlyBugsAreScored) {
  KillMatrix matrix;
  matrix.rows = {Row(MutantClass::kSpecificationChange, {kCaught}),
                 Row(MutantClass::kBenign, {kMissed}),
                 Row(MutantClass::kEquivalent, {kMissed}),
                 Row(MutantClass::kBug, {})};

  EXPECT_EQ(matrix.Score().of, 0);
  EXPECT_EQ(matrix.Score().lower, 0);
  EXPECT_EQ(matrix.Score().upper, 1);
}

TEST(KillMatrix, WhateverABenignRunGetsButAPassIsAnAlarm) {
  KillMatrix matrix{.levels = {"L0", "L1", "L2"}, .peers = {"peer"}};
  matrix.benign = {kMissed, Cell(Outcome::kPass, Outcome::kInconclusive),
                   Cell(Outcome::kFail, Outcome::kFail)};
  matrix.rows = {Row(MutantClass::kBenign, {kCaught})};

  EXPECT_EQ(matrix.FalseAlarms().count, 2);
  EXPECT_EQ(matrix.FalseAlarms().of, 3);
  EXPECT_EQ(matrix.FalseAlarmsOfLevel(1).count, 1);
  EXPECT_EQ(matrix.FalseAlarmsOfPeer(0).count, 0);
}

TEST(KillMatrix, ThreeHundredQuietRunsBoundTheRateBelowOnePercent) {
  KillMatrix matrix;
  matrix.benign.assign(300, kMissed);

  // Nothing in n runs: the bound is 1 - 0.05^(1/n) (Clopper and Pearson).
  EXPECT_NEAR(matrix.FalseAlarms().upper_one_sided,
              1 - std::pow(0.05, 1.0 / 300), 1e-12);
  EXPECT_LT(matrix.FalseAlarms().upper_one_sided, 0.01);
}

TEST(MutantClass, HasANameAndIsFoundByIt) {
  for (const auto mutant_class :
       {MutantClass::kBug, MutantClass::kSpecificationChange,
        MutantClass::kBenign, MutantClass::kEquivalent}) {
    EXPECT_EQ(MutantClassByName(MutantClassName(mutant_class)), mutant_class);
  }
  EXPECT_THROW(MutantClassByName("bugs"), Error);
}

}  // namespace
}  // namespace isoloss::gate
