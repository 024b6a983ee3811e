// Steps of recipes that nobody registered: right ones pass, and what is done
// otherwise than the recipe says is found in the values.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/formats/scaling.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/oracle/known_recipes.h"
#include "oracle/trial.h"

namespace isoloss::oracle {
namespace {

using formats::Cell;
using formats::Quantization;
using formats::ScaleFormat;
using formats::ScaleRule;
using kernels::GemmProblem;

Quantization Nvfp4(Cell cell) {
  Quantization q{&formats::FormatByName("e2m1"), ScaleRule::kTe};
  q.scale_format = ScaleFormat::kE4m3;
  q.scaling = &formats::ScalingByName("two_level");
  q.cell = cell;
  return q;
}

Quantization Wide(Cell cell) {
  Quantization q{&formats::FormatByName("e4m3"), ScaleRule::kTe};
  q.scale_format = ScaleFormat::kFp32;
  q.cell = cell;
  return q;
}

precision::Recipe Named(const char* name) {
  precision::Recipe recipe;
  recipe.name = name;
  recipe.include = {"attention", "routed_experts", "feed_forward"};
  return recipe;
}

/// Two scales, stochastic gradients under a random transform, BF16 gradients.
precision::Recipe Fp4() {
  precision::Recipe recipe = Named("own_fp4");
  recipe.fprop = {Nvfp4({1, 16}), Nvfp4({16, 16})};
  Quantization gradient = Nvfp4({1, 16});
  gradient.rounding = &formats::RoundingModeByName("stochastic");
  gradient.random_bits = 8;
  recipe.dgrad = {gradient, Nvfp4({16, 16})};
  Quantization input = Nvfp4({1, 16});
  gradient.transform = input.transform =
      &formats::TransformByName("hadamard16_random");
  recipe.wgrad = {gradient, input};
  recipe.weight_gradients = recipe.activation;
  return recipe;
}

/// Tiles and squares with FP32 scales; wgrad quantises what is quantised.
precision::Recipe Fp8() {
  precision::Recipe recipe = Named("own_fp8");
  recipe.fprop = recipe.dgrad = {Wide({1, 16}), Wide({16, 16})};
  recipe.wgrad = {.left = Wide({1, 16}),
                  .right = Wide({1, 16}),
                  .left_again = true,
                  .right_again = true};
  return recipe;
}

/// Tensor cores that are promoted each 32 steps.
precision::Recipe Cores() {
  precision::Recipe recipe = Named("own_cores");
  const Quantization mx{&formats::FormatByName("e4m3")};
  recipe.fprop = recipe.dgrad =
      recipe.wgrad = {mx, mx, {&kernels::AccumulatorByName("hopper_f13"), 32}};
  return recipe;
}

precision::Recipe Delayed() {
  precision::Recipe recipe = Named("own_delayed");
  Quantization q = Wide({0, 0});
  q.scaling = &formats::ScalingByName("delayed");
  q.history = 2;
  recipe.fprop = {q, Wide({0, 0})};
  recipe.dgrad = recipe.wgrad = {Wide({0, 0}), Wide({0, 0})};
  recipe.dgrad.accumulation = {.interval = 16,
                               .outer = kernels::Rounding::kBf16};
  return recipe;
}

/// Segments are longer than any block or interval, and no multiple.
train::Experiment TrialOf(const precision::Recipe& recipe) {
  train::Experiment experiment = SmallTrial(/*sequence_length=*/41);
  experiment.arms.resize(1);
  experiment.arms[0].name = recipe.name;
  experiment.arms[0].Use(recipe);
  return experiment;
}

/// Computes the weight gradients as `edit` makes of them what they are.
model::GemmEngine Wrong(const std::function<void(GemmProblem&)>& edit) {
  return [edit](std::span<const model::GemmTask> tasks, ThreadTeam& team) {
    std::vector<GemmProblem> problems;
    for (const model::GemmTask& task : tasks) {
      problems.push_back(task.problem);
      if (task.role == precision::GemmRole::kWgrad &&
          task.problem.a.quantization != nullptr) {
        edit(problems.back());
      }
    }
    kernels::GemmBatch(problems, team);
  };
}

/// Expects that a step whose weight gradients are so changed is found.
void ExpectFound(const precision::Recipe& recipe,
                 const std::function<void(GemmProblem&)>& edit) {
  FirstStep step(TrialOf(recipe), recipe.name, Wrong(edit));
  EXPECT_GT(step.Others(), 10) << recipe.name;
}

/// The same, with other descriptions of both operands.
void ExpectFound(const precision::Recipe& recipe,
                 const std::function<void(Quantization&)>& edit) {
  std::deque<Quantization> kept;
  ExpectFound(recipe, [&](GemmProblem& problem) {
    for (kernels::Operand* side : {&problem.a, &problem.b}) {
      Quantization other = *side->quantization;
      edit(other);
      side->quantization = &kept.emplace_back(other);
    }
  });
}

TEST(OwnRecipes, AreExplained) {
  for (const precision::Recipe& recipe : {Fp4(), Fp8(), Cores(), Delayed()}) {
    FirstStep step(TrialOf(recipe), recipe.name);
    ReportSink sink;

    step.Check(sink);

    for (const auto& [tensor, comparison] : sink.comparisons()) {
      const runlog::OracleRow row = comparison.Row();
      EXPECT_EQ(row.other, 0)
          << recipe.name << ": " << tensor << " [" << row.worst_row << ", "
          << row.worst_column << "] is " << row.worst_value << ", not "
          << row.worst_expected;
    }
  }
}

TEST(OwnRecipes, AreFoundWithSwappedAxes) {
  ExpectFound(Fp8(), [](Quantization& q) { q.cell = {16, 1}; });
  ExpectFound(Fp4(), [](Quantization& q) { q.cell = {16, 1}; });
}

TEST(OwnRecipes, AreFoundWithOtherBlocks) {
  // Not of MX: powers of two rarely change what an element becomes.
  ExpectFound(Fp4(), [](Quantization& q) { q.cell = {1, 32}; });
  ExpectFound(Fp8(), [](Quantization& q) { q.cell = {1, 32}; });
}

TEST(OwnRecipes, AreFoundWithOtherSigns) {
  ExpectFound(Fp4(), [](Quantization& q) {
    q.transform = &formats::TransformByName("hadamard16_te");
  });
}

TEST(OwnRecipes, AreFoundWithBitsOfAnotherStep) {
  std::deque<kernels::OperandState> kept;
  ExpectFound(Fp4(), [&](GemmProblem& problem) {
    kernels::OperandState& other = kept.emplace_back(*problem.a.state);
    ++other.common.stream;
    problem.a.state = &other;
  });
}

TEST(OwnRecipes, AreFoundWithPromotionOneStepLate) {
  ExpectFound(Cores(),
              [](GemmProblem& problem) { ++problem.accumulation.interval; });
}

TEST(OwnRecipes, AreFoundWithoutTheSecondQuantisation) {
  ExpectFound(Fp8(), [](GemmProblem& problem) { problem.a.before = nullptr; });
  ExpectFound(Fp8(), [](GemmProblem& problem) { problem.b.before = nullptr; });
}

TEST(OwnRecipes, AreFoundWithUnroundedWeightGradients) {
  ExpectFound(Fp4(), [](GemmProblem& problem) {
    problem.rounding = kernels::Rounding::kFp32;
  });
}

TEST(OwnRecipes, AreNotBelievedInTheirStates) {
  FirstStep step(TrialOf(Fp4()), Fp4().name);
  RecordedTensor& tensor =
      step.record().MutableAt("layers.0.attention.wo_gradient");
  ASSERT_EQ(tensor.rowwise_states.size(), 1);
  ASSERT_EQ(step.Others(), 0);
  const auto spoilt = [&](auto& value, auto other) {
    const auto before = value;
    value = other;
    EXPECT_GT(step.Others(), 0);
    value = before;
  };
  spoilt(tensor.rowwise_states[0].common.stream, uint64_t{1});
  spoilt(tensor.columnwise_states[0].common.transform_key, uint64_t{1});
  spoilt(tensor.columnwise_states[0].first_tensor, size_t{1});
  spoilt(tensor.columnwise_again, true);
  spoilt(tensor.rowwise.cell, Cell{1, 32});
  spoilt(tensor.columnwise.random_bits, 7);
  tensor.rowwise_states.clear();
  EXPECT_GT(step.Others(), 0);
}

TEST(AsKnown, LeavesUnknownRecipesAlone) {
  for (const precision::Recipe& recipe : {Fp4(), Fp8(), Cores()}) {
    const precision::Recipe known = AsKnown(recipe);
    EXPECT_EQ(known.wgrad.left, recipe.wgrad.left);
    EXPECT_EQ(known.wgrad.accumulation, recipe.wgrad.accumulation);
    EXPECT_EQ(known.wgrad.left_again, recipe.wgrad.left_again);
    EXPECT_EQ(known.weight_gradients, recipe.weight_gradients);
  }
}

TEST(AsKnown, GivesKnownNamesTheirContent) {
  precision::Recipe recipe = Cores();
  recipe.name = "mxfp8_rceil";
  recipe.weight_gradients = kernels::Rounding::kBf16;

  const precision::Recipe known = AsKnown(recipe);

  EXPECT_EQ(known.fprop.accumulation, kernels::Accumulation{});
  EXPECT_EQ(known.weight_gradients, kernels::Rounding::kFp32);
}

}  // namespace
}  // namespace isoloss::oracle
