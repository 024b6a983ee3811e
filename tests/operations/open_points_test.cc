// What files hold and no finding judges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "operations/checks.h"
#include "operations/samples.h"

namespace isoloss::operations::open_points_test {
namespace {

using test_support::Random;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// An update that nobody computed: only its names and shapes matter here.
Operation Update(const std::string& module,
                 const std::vector<size_t>& extent = {4, 8}) {
  Operation update = {.type = "adamw", .module = module};
  update.numbers = {{"lr", 0.1},   {"beta1", 0.9},      {"beta2", 0.9},
                    {"eps", 1e-8}, {"weight_decay", 0}, {"step", 1}};
  for (const char* name :
       {"parameter_before", "gradient", "exp_avg_before", "exp_avg_sq_before",
        "parameter_after", "exp_avg_after", "exp_avg_sq_after"}) {
    update.floats[name] = Random(extent, name, "float32");
  }
  return update;
}

Operation Layer(const std::string& module) {
  Operation layer = test_support::LinearInputs(module);
  test_support::Compute(precision::RecipeByName("bf16"), layer);
  return layer;
}

/// "!module: text" of points that forbid a PASS, "module: text" of others.
std::vector<std::string> Points(const std::vector<OperationFile>& files) {
  std::vector<std::string> texts;
  for (const OpenPoint& point : OpenPointsOf(files)) {
    texts.push_back((point.forbids_pass ? "!" : "") + point.module + ": " +
                    point.text);
  }
  return texts;
}

OperationFile File(int64_t step, const std::vector<Operation>& operations,
                   int64_t rank = 0) {
  return {.path = "f", .step = step, .rank = rank, .operations = operations};
}

TEST(OpenPoints, WhatTheRecorderLeftOut) {
  OperationFile file = File(1, {Layer("l")});
  file.unrecorded = "no operation holds a.\nno operation reads b";
  EXPECT_THAT(Points({file}),
              ElementsAre(": no operation holds a", ": no operation reads b"));
  file.unrecorded = "";
  file.contradictions = "loads do not add up.";
  EXPECT_THAT(Points({file}), ElementsAre("!: loads do not add up"));
}

TEST(OpenPoints, ResultsWithoutTheirInputs) {
  Operation layer = Layer("l");
  EXPECT_THAT(Points({File(1, {layer})}), IsEmpty());
  layer.floats.erase("grad_output");
  EXPECT_THAT(
      Points({File(1, {layer})}),
      ElementsAre(
          "!l: grad_input was not checked, since grad_output is missing",
          "!l: grad_weight was not checked, since grad_output is missing"));
}

TEST(OpenPoints, CodesOfTheOtherOperandAreComparedAllTheSame) {
  Operation layer = test_support::LinearInputs();
  test_support::AddCodes(precision::RecipeByName("mxfp8_rceil"), layer);
  layer.floats.erase("grad_output");
  for (const char* name : {"dgrad_dy", "wgrad_dy"}) {
    layer.codes.erase(std::string(name) + "_codes");
    layer.codes.erase(std::string(name) + "_scales");
  }
  layer.codes["wgrad_x_codes"].values[7] ^= 1;

  EXPECT_THAT(Points({File(1, {layer})}), IsEmpty());
  EXPECT_EQ(Part(Check({layer}), "wgrad_x codes").comparison.other(), 1);
  EXPECT_TRUE(Part(Check({layer}), "dgrad_w codes").is_right());
}

TEST(OpenPoints, RowsOfNoGroupAreZeroOrListed) {
  Operation grouped = test_support::GroupedInputs();
  grouped.integers["group_ends"].values = {20, 20, 49, 60};
  test_support::Compute(precision::RecipeByName("bf16"), grouped);
  EXPECT_THAT(Points({File(1, {grouped})}), IsEmpty());
  Floats& output = grouped.floats["output"];
  output.values.back() = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(
      Points({File(1, {grouped})}),
      ElementsAre("!moe.experts.w1: rows 60 to 63 of output were not checked, "
                  "since they are of no group and not zero: group_ends leaves "
                  "them out"));
}

TEST(OpenPoints, StateThatHasNoCounterpart) {
  const Operation a = Update("a.weight");
  const Operation b = Update("b.weight");
  EXPECT_THAT(Points({File(1, {a, b}), File(2, {a, b})}), IsEmpty());
  EXPECT_THAT(Points({File(1, {a, b}), File(2, {a})}),
              ElementsAre("!b.weight: an update is missing, which step 1 had"));
  EXPECT_THAT(Points({File(1, {a}), File(2, {a, b})}),
              ElementsAre("b.weight: state was not compared: step 1 has no "
                          "update of the parameter"));
  EXPECT_THAT(
      Points({File(1, {a}), File(2, {Update("module.a.weight")})}),
      ElementsAre("!a.weight: an update is missing, which step 1 had",
                  "module.a.weight: state was not compared: step 1 has no "
                  "update of the parameter",
                  "!: no state of the optimizer was compared with that of step "
                  "1, though both files hold updates"));
  EXPECT_THAT(Points({File(1, {a, b}), File(2, {Update("a.weight", {32}), b})}),
              ElementsAre("!a.weight: state was not compared with the step "
                          "before, since shapes differ"));
  EXPECT_THAT(Points({File(1, {a}), File(3, {a})}),
              ElementsAre(": the optimizer's state was not compared between "
                          "steps 1 and 3, which do not follow each other"));
}

TEST(OpenPoints, AnExpertWithoutTokensHasNoUpdate) {
  const std::vector<size_t> extent = {test_support::kOut, test_support::kIn};
  const Operation update = Update("expert.weight", extent);
  const Operation other = Update("other.weight", extent);
  const OperationFile before =
      File(1, {Layer("expert"), Layer("other"), update, other});
  EXPECT_THAT(Points({before, File(2, {Layer("other"), other})}),
              ElementsAre("expert.weight: an update is missing, which step 1 "
                          "had"));
  EXPECT_THAT(
      Points({before, File(2, {Layer("expert"), Layer("other"), other})}),
      ElementsAre("!expert.weight: an update is missing, which step 1 had"));
  EXPECT_THAT(Points({File(1, {Layer("frozen"), other})}),
              ElementsAre("frozen: the weight was not compared with the "
                          "optimizer's: no update has its name"));
}

TEST(OpenPoints, AWeightWithGradientsThatStaysIsOpen) {
  const std::vector<size_t> extent = {test_support::kOut, test_support::kIn};
  const Operation other = Update("other.weight", extent);
  const auto is_told = [&](const OperationFile& last, Operation layer) {
    const std::vector<std::string> points =
        Points({last, File(2, {std::move(layer), other})});
    return std::ranges::any_of(points, [](const std::string& point) {
      return point.starts_with("!lost: the weight got a gradient in step 1");
    });
  };
  OperationFile last = File(1, {Layer("lost"), other});
  EXPECT_TRUE(is_told(last, Layer("lost")));
  Operation changed = Layer("lost");
  changed.floats["weight"].values[3] += 1.0f;
  EXPECT_FALSE(is_told(last, changed));
  last.mesh = "dp=2";  // another rank's file may have the update
  last.ranks = 2;
  EXPECT_FALSE(is_told(last, Layer("lost")));
  last.mesh = "";
  last.operations[0].floats.erase("grad_weight");
  EXPECT_FALSE(is_told(last, Layer("lost")));
}

TEST(OpenPoints, ASkippedStepHasAReason) {
  Operation skipped = Update("a.weight");
  skipped.texts["expected"] = "skipped";
  Operation other = skipped;
  other.module = "b.weight";
  EXPECT_THAT(Points({File(1, {skipped})}),
              ElementsAre("!a.weight: the step was to be skipped, but every "
                          "recorded gradient is finite"));
  // That of another parameter is reason enough, also on another rank.
  other.floats["gradient"].values[2] = HUGE_VALF;
  EXPECT_THAT(Points({File(1, {skipped, other})}), IsEmpty());
  EXPECT_THAT(Points({File(1, {skipped}), File(1, {other}, 1)}), IsEmpty());
}

TEST(OpenPoints, ReplicasHaveOneGradient) {
  const Operation update = Update("a.weight");
  Operation other = update;
  other.floats["gradient"].values[3] *= 2.0f;
  const auto points = [&](const Operation& second) {
    return Points({File(1, {update}), File(1, {second}, 1)});
  };
  EXPECT_THAT(points(update), IsEmpty());
  EXPECT_THAT(points(other),
              ElementsAre("!a.weight: ranks 0 and 1 have equal parameters, but "
                          "other gradients: replicas part here"));
  // A shard, and a part of a constant.
  other.floats["parameter_before"].values[0] += 1.0f;
  EXPECT_THAT(points(other), IsEmpty());
  Operation constant = update;
  for (float& value : constant.floats["parameter_before"].values) value = 1.0f;
  other.floats["parameter_before"] = constant.floats["parameter_before"];
  EXPECT_THAT(Points({File(1, {constant}), File(1, {other}, 1)}), IsEmpty());
}

TEST(OpenPoints, GradientsOfReplicasMayDifferByAFactor) {
  const Operation update = Update("a.weight");
  Operation other = update;
  for (float& value : other.floats["gradient"].values) value *= 0.5f;
  EXPECT_THAT(Points({File(1, {update}), File(1, {other}, 1)}),
              ElementsAre(::testing::HasSubstr("One is 0.5 times the other")));
}

TEST(OpenPoints, ReplicasThatHavePartedAreAlikeAndShardsAreNot) {
  const Operation update = Update("a.weight", {16, 32});
  Operation parted = update;
  parted.floats["parameter_before"].values[7] += 0.01f;
  EXPECT_THAT(Points({File(1, {update}), File(1, {parted}, 1)}),
              ElementsAre("!a.weight: ranks 0 and 1 have parameters that are "
                          "alike, but not equal: replicas have parted before "
                          "this step"));
  Operation shard = update;
  shard.floats["parameter_before"] = Random({16, 32}, "shard", "float32");
  EXPECT_THAT(Points({File(1, {update}), File(1, {shard}, 1)}), IsEmpty());
}

TEST(OpenPoints, RowsOfExpertsAreThoseThatRoutersChose) {
  Operation experts = test_support::GroupedInputs();
  test_support::Compute(precision::RecipeByName("bf16"), experts);
  Operation router = {.type = "router", .module = "router"};
  const size_t tokens = test_support::kTokens / 2;
  router.floats["scores"] = Random({tokens, 4}, "scores");
  router.floats["scores"].type = "float32";
  router.integers["expert_ids"] = {.extent = {tokens, 2},
                                   .values = std::vector<int64_t>(2 * tokens)};
  const auto points = [&] { return Points({File(1, {router, experts})}); };
  EXPECT_THAT(points(), IsEmpty());

  // Padding is zero; a token that was lost leaves a row of zeros, too.
  auto& x = experts.floats["x"].values;
  std::fill_n(x.begin(), test_support::kIn, 0.0f);
  EXPECT_THAT(points(), ElementsAre(::testing::HasSubstr(
                            "have 63 rows that are not zero, but routers "
                            "chose 64: tokens were dropped")));
  router.numbers["dropped"] = 1;
  EXPECT_THAT(points(), IsEmpty());

  // Whoever has all experts needs no other rank; a part of them does.
  OperationFile half = File(1, {router, experts});
  half.ranks = 2;
  const auto missing = ::testing::HasSubstr("files of 1 of 2 ranks are given");
  EXPECT_THAT(Points({half}), ElementsAre(missing));
  half.operations[1].numbers["experts"] = 8;
  EXPECT_THAT(Points({half}),
              ElementsAre(missing, ::testing::HasSubstr(
                                       "rows of experts were not counted")));
  // Another rank of these tokens has the router's other experts.
  OperationFile other = half;
  other.rank = 1;
  other.operations.erase(other.operations.begin());
  EXPECT_THAT(Points({half, other}),
              ElementsAre(::testing::HasSubstr("have 126 rows")));
}

}  // namespace
}  // namespace isoloss::operations::open_points_test
