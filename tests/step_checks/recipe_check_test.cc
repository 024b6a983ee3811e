// Steps of recipes that nobody registered: right ones pass, and what is done
// otherwise than the recipe says is found in the values.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "isoloss/kernels/gemm.h"
#include "isoloss/step_checks/known_recipes.h"
#include "step_checks/planted_error.h"
#include "step_checks/trial.h"

namespace isoloss::step_checks::recipe_check_test {
namespace {

using formats::Cell;
using formats::Quantization;
using formats::ScaleFormat;
using formats::ScaleRule;
using kernels::GemmProblem;
using precision::GemmRole;

Quantization Nvfp4(Cell cell) {
  Quantization q{&formats::FormatByName("e2m1"), ScaleRule::kTe};
  q.scale_format = ScaleFormat::kE4m3;
  q.scaling = formats::Scaling::kTwoLevel;
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
  gradient.rounding = formats::RoundingMode::kStochastic;
  gradient.random_bits = 8;
  recipe.dgrad = {gradient, Nvfp4({16, 16})};
  Quantization input = Nvfp4({1, 16});
  gradient.transform = input.transform = formats::Transform::kHadamard16Random;
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

/// Tensor cores that are promoted each 32 steps, at one site a layer: bits are
/// slow to compute.
precision::Recipe Cores() {
  precision::Recipe recipe = Named("own_cores");
  recipe.include = {"attention.wo"};
  const Quantization mx{&formats::FormatByName("e4m3")};
  recipe.fprop = recipe.dgrad =
      recipe.wgrad = {mx, mx, {&kernels::AccumulatorByName("hopper_f13"), 32}};
  return recipe;
}

precision::Recipe Delayed() {
  precision::Recipe recipe = Named("own_delayed");
  Quantization q = Wide({0, 0});
  q.scaling = formats::Scaling::kDelayed;
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

/// Elements that are not explained of a step whose products of one role are so
/// changed.
int64_t OthersWith(const precision::Recipe& recipe, GemmRole role,
                   const std::function<void(GemmProblem&)>& edit) {
  const auto engine = Wrong(
      role,
      [edit](const model::GemmTask&, GemmProblem& problem) { edit(problem); });
  return FirstStep(TrialOf(recipe), recipe.name, engine).Others();
}

void ExpectFound(const precision::Recipe& recipe, GemmRole role,
                 const std::function<void(GemmProblem&)>& edit) {
  EXPECT_GT(OthersWith(recipe, role, edit), 10) << recipe.name;
}

/// The same of weight gradients, with other descriptions of both operands.
void ExpectFound(const precision::Recipe& recipe,
                 const std::function<void(Quantization&)>& edit) {
  std::deque<Quantization> kept;
  ExpectFound(recipe, GemmRole::kWgrad, [&](GemmProblem& problem) {
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

TEST(OwnRecipes, AreExplainedIfAnEngineChangesNothing) {
  for (const precision::Recipe& recipe : {Fp4(), Fp8(), Cores(), Delayed()}) {
    for (const GemmRole role : {GemmRole::kDgrad, GemmRole::kWgrad}) {
      EXPECT_EQ(OthersWith(recipe, role, [](GemmProblem&) {}), 0)
          << recipe.name;
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

TEST(OwnRecipes, AreFoundWithRowsInPlaceOfSquares) {
  std::deque<Quantization> kept;
  ExpectFound(Fp8(), GemmRole::kDgrad, [&](GemmProblem& problem) {
    kept.push_back(*problem.b.quantization);
    kept.back().cell.rows = 1;
    problem.b.quantization = &kept.back();
  });
}

TEST(OwnRecipes, AreFoundWithOtherSigns) {
  ExpectFound(Fp4(), [](Quantization& q) {
    q.transform = formats::Transform::kHadamard16Te;
  });
}

TEST(OwnRecipes, AreFoundWithOtherRoundings) {
  const auto rounded = [](formats::RoundingMode rounding) {
    return [rounding](Quantization& q) {
      q.rounding = rounding;
      q.random_bits = 0;
    };
  };
  ExpectFound(Fp4(), rounded(formats::RoundingMode::kNearestEven));
  ExpectFound(Fp8(), rounded(formats::RoundingMode::kTowardZero));
  // Ties of BF16 numbers under powers of two are frequent.
  ExpectFound(Cores(), rounded(formats::RoundingMode::kHalfAway));
}

TEST(OwnRecipes, AreFoundWithOtherScales) {
  ExpectFound(Cores(),
              [](Quantization& q) { q.scale_rule = ScaleRule::kFloor; });
  ExpectFound(Fp8(),
              [](Quantization& q) { q.scale_rule = ScaleRule::kDeepgemm; });
}

TEST(OwnRecipes, AreFoundWithoutTheScaleOfTheTensor) {
  ExpectFound(Fp4(),
              [](Quantization& q) { q.scaling = formats::Scaling::kCurrent; });
}

TEST(OwnRecipes, AreFoundWithBitsOfTheOtherProduct) {
  // The gradient is quantised along rows for dgrad and down columns for wgrad.
  std::map<std::string, kernels::OperandState> of_dgrad;
  const auto engine = [&](std::span<const model::GemmTask> tasks,
                          Executor& executor) {
    std::vector<GemmProblem> problems;
    std::deque<kernels::OperandState> kept;
    for (const model::GemmTask& task : tasks) {
      GemmProblem& problem = problems.emplace_back(task.problem);
      if (problem.a.state == nullptr) continue;
      const std::string place =
          std::string(task.site) + std::to_string(task.group);
      if (task.role == GemmRole::kDgrad) of_dgrad[place] = *problem.a.state;
      if (task.role != GemmRole::kWgrad) continue;
      ASSERT_TRUE(of_dgrad.contains(place)) << place;
      kernels::OperandState& other = kept.emplace_back(*problem.a.state);
      other.common.stream = of_dgrad[place].common.stream;
      problem.a.state = &other;
    }
    kernels::GemmBatch(problems, executor);
  };
  FirstStep step(TrialOf(Fp4()), Fp4().name, engine);
  EXPECT_GT(step.Others(), 10);
}

TEST(OwnRecipes, AreFoundWithBitsOfTheFirstSequence) {
  // Each sequence is a tensor; here they are products of their own, each of
  // which takes its rows for the batch's first tensor.
  const auto others = [](bool reuses) {
    const auto engine = [reuses](std::span<const model::GemmTask> tasks,
                                 Executor& executor) {
      std::vector<GemmProblem> problems;
      std::deque<kernels::OperandState> kept;
      for (const model::GemmTask& task : tasks) {
        const GemmProblem& whole = task.problem;
        const size_t tensors = whole.a.tensor_ends.size();
        if (task.role != GemmRole::kDgrad || tensors == 0) {
          problems.push_back(whole);
          continue;
        }
        size_t begin = 0;
        for (size_t number = 0; number < tensors; ++number) {
          const size_t rows = whole.a.tensor_ends[number] - begin;
          GemmProblem& part = problems.emplace_back(whole);
          part.a.values = whole.a.values.Rows(begin, rows);
          part.c = whole.c.Rows(begin, rows);
          if (!whole.addend.empty()) {
            part.addend = whole.addend.Rows(begin, rows);
          }
          part.a.tensor_ends = {};
          begin += rows;
          if (whole.a.state == nullptr) continue;
          part.a.state = &kept.emplace_back(*whole.a.state);
          kept.back().first_tensor += reuses ? 0 : number;
        }
      }
      kernels::GemmBatch(problems, executor);
    };
    return FirstStep(TrialOf(Fp4()), Fp4().name, engine).Others();
  };
  EXPECT_EQ(others(false), 0);
  EXPECT_GT(others(true), 10);
}

TEST(OwnRecipes, AreFoundWithPromotionOneStepLate) {
  ExpectFound(Cores(), GemmRole::kWgrad,
              [](GemmProblem& problem) { ++problem.accumulation.interval; });
}

TEST(OwnRecipes, AreFoundWithAnotherOuterSum) {
  ExpectFound(Delayed(), GemmRole::kDgrad, [](GemmProblem& problem) {
    problem.accumulation.outer = kernels::Rounding::kFp32;
  });
}

TEST(OwnRecipes, AreFoundWithOneFractionBitLess) {
  static constexpr kernels::Accumulator kOneLess = {
      .name = "one_less",
      .exponents = kernels::FactorExponents::kOfCodes,
      .steps = 32,
      .fraction_bits = 12,
      .significand_bits = 14,
      .cores = "no",
      .source = "none"};
  ExpectFound(Cores(), GemmRole::kWgrad, [](GemmProblem& problem) {
    problem.accumulation.accumulator = &kOneLess;
  });
}

TEST(OwnRecipes, AreFoundWithoutTheSecondQuantisation) {
  ExpectFound(Fp8(), GemmRole::kWgrad,
              [](GemmProblem& problem) { problem.a.before = nullptr; });
  ExpectFound(Fp8(), GemmRole::kWgrad,
              [](GemmProblem& problem) { problem.b.before = nullptr; });
}

TEST(OwnRecipes, AreFoundWithUnroundedWeightGradients) {
  // What is trained says nothing of this rounding.
  precision::Recipe unrounded = Fp4();
  unrounded.weight_gradients = kernels::Rounding::kFp32;
  FirstStep step(TrialOf(unrounded), unrounded.name);
  ASSERT_EQ(step.Others(), 0);

  step.Expect(Fp4());

  EXPECT_GT(step.Others(), 10);
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
}  // namespace isoloss::step_checks::recipe_check_test
