// Steps with quantised attention and gains of norms: right ones pass, and what
// is done otherwise than the recipe says is found in the values.
#include "support/outside_recipes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "isoloss/kernels/rowwise.h"
#include "isoloss/step_checks/known_recipes.h"
#include "step_checks/trial.h"

namespace isoloss::step_checks::outside_recipes_test {
namespace {

using formats::Quantization;
using isoloss::test_support::kCutAttention;
using isoloss::test_support::kFa3Attention;
using isoloss::test_support::kFp4Attention;
using isoloss::test_support::kMxAttention;
using isoloss::test_support::kMxGains;
using isoloss::test_support::kTeAttention;
using isoloss::test_support::kTileAttention;
using isoloss::test_support::RecipeFrom;
using precision::AttentionPrecision;
using precision::Recipe;

/// Two heads; documents are longer than a block of queries, and no multiple of
/// any block.
train::Experiment TrialOf(const Recipe& recipe) {
  train::Experiment experiment =
      Trial({"model.dim=32", "model.n_heads=2", "model.kv_lora_rank=16",
             "model.dense_hidden_dim=32", "model.moe_hidden_dim=32",
             "model.num_experts=4", "model.qk_nope_head_dim=20",
             "model.v_head_dim=20", "data.sequence_length=71"});
  experiment.arms.resize(1);
  experiment.arms[0].name = recipe.name;
  experiment.arms[0].Use(recipe);
  return experiment;
}

/// Gains of 1 have the bits that formats make of them. Projections are made
/// larger, for probabilities and gradients that differ.
void Spread(model::ParameterSet& weights) {
  for (model::Parameter& parameter : weights.parameters()) {
    const bool gain = parameter.shape.size() == 1;
    if (!gain && parameter.name.find(".w") == std::string::npos) continue;
    for (size_t i = 0; i < parameter.values.size(); ++i) {
      float& value = parameter.values.data()[i];
      value *= gain ? 0.7f + 0.037f * static_cast<float>(i) : 6.0f;
    }
  }
}

FirstStep StepOf(const Recipe& recipe) {
  return FirstStep(TrialOf(recipe), recipe.name, {}, Spread);
}

void ExpectExplained(FirstStep& step, const std::string& what) {
  ReportSink sink;
  step.Check(sink);
  for (const auto& [tensor, comparison] : sink.comparisons()) {
    const runlog::OracleRow row = comparison.Row();
    EXPECT_EQ(row.other, 0)
        << what << ": " << tensor << " [" << row.worst_row << ", "
        << row.worst_column << "] is " << row.worst_value << ", not "
        << row.worst_expected << ", ratio " << row.worst_ratio;
  }
}

class OutsideRecipes : public ::testing::TestWithParam<size_t> {
 protected:
  Recipe recipe() const {
    return isoloss::test_support::OutsideRecipes()[GetParam()];
  }
};

TEST_P(OutsideRecipes, AreExplained) {
  FirstStep step = StepOf(recipe());

  ExpectExplained(step, recipe().name);
}

TEST_P(OutsideRecipes, AreExplainedInFp32) {
  Recipe fp32 = recipe();
  fp32.activation = kernels::Rounding::kFp32;
  FirstStep step = StepOf(fp32);

  ExpectExplained(step, fp32.name);
}

TEST_P(OutsideRecipes, AreExplainedBesideQuantisedSites) {
  Recipe both = precision::RecipeByName("te_fp8_current");
  both.name = "both";
  both.attention = recipe().attention;
  both.norm_gains = recipe().norm_gains;
  FirstStep step = StepOf(both);

  ExpectExplained(step, both.name);
}

TEST_P(OutsideRecipes, AreNotThoseThatQuantiseNothing) {
  FirstStep step = StepOf(recipe());
  Recipe nothing;
  nothing.name = "nothing";

  step.Expect(nothing);

  EXPECT_GT(step.Others(), 100);
}

INSTANTIATE_TEST_SUITE_P(
    All, OutsideRecipes,
    ::testing::Range<size_t>(0, isoloss::test_support::OutsideRecipes().size()),
    [](const auto& index) {
      return isoloss::test_support::OutsideRecipes()[index.param].name;
    });

/// Elements of each tensor that a step of `ran` has otherwise than `asked`.
std::map<std::string, int64_t> Findings(const Recipe& ran,
                                        const Recipe& asked) {
  FirstStep step = StepOf(ran);
  step.Expect(asked);
  ReportSink sink;
  step.Check(sink);
  std::map<std::string, int64_t> others;
  for (const auto& [tensor, comparison] : sink.comparisons()) {
    others[tensor] = comparison.other();
  }
  return others;
}

const std::string kCore = "layers.0.attention.";

/// One operand's description is left out, or changed.
struct Change {
  const char* name;
  std::string_view recipe;
  std::optional<Quantization> AttentionPrecision::*operand;
  std::function<void(std::optional<Quantization>&)> edit;
  /// Where it shows.
  std::vector<std::string> tensors;
};
void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

class ChangedOperand : public ::testing::TestWithParam<Change> {};

TEST_P(ChangedOperand, IsFound) {
  const Recipe asked = RecipeFrom(GetParam().recipe);
  Recipe ran = asked;
  GetParam().edit(ran.attention.*GetParam().operand);

  const auto others = Findings(ran, asked);

  for (const std::string& tensor : GetParam().tensors) {
    EXPECT_GT(others.at(kCore + tensor), 10) << tensor;
  }
}

void LeaveOut(std::optional<Quantization>& operand) { operand.reset(); }
/// Not of MX: powers of two rarely change what an element becomes.
void Turn(std::optional<Quantization>& operand) { operand->cell = {16, 1}; }
void ToNearest(std::optional<Quantization>& operand) {
  operand->rounding = formats::RoundingMode::kNearestEven;
}
void OneBitLess(std::optional<Quantization>& operand) {
  --operand->random_bits;
}

const std::string kOut = "inner_attention_output";
const std::string kDq = "inner_attention.q_gradient";
const std::string kDk = "inner_attention.k_gradient";
const std::string kDv = "wkv_b_gradient";

INSTANTIATE_TEST_SUITE_P(
    All, ChangedOperand,
    ::testing::Values(
        Change{"NoQ",
               kTeAttention,
               &AttentionPrecision::q,
               LeaveOut,
               {kOut, kDq, kDk, kDv}},
        Change{"NoK",
               kFa3Attention,
               &AttentionPrecision::k,
               LeaveOut,
               {kOut, kDq, kDk, kDv}},
        Change{
            "NoP", kTeAttention, &AttentionPrecision::p, LeaveOut, {kOut, kDv}},
        Change{"NoPForwardOnly",
               kFa3Attention,
               &AttentionPrecision::p,
               LeaveOut,
               {kOut}},
        Change{"NoV",
               kMxAttention,
               &AttentionPrecision::v,
               LeaveOut,
               {kOut, kDq, kDk}},
        Change{"NoDo",
               kTeAttention,
               &AttentionPrecision::d_out,
               LeaveOut,
               {kDq, kDk, kDv}},
        Change{"NoDs",
               kTeAttention,
               &AttentionPrecision::d_scores,
               LeaveOut,
               {kDq, kDk}},
        Change{"TurnedQ",
               kTileAttention,
               &AttentionPrecision::q,
               Turn,
               {kOut, kDk}},
        Change{"TurnedK",
               kTileAttention,
               &AttentionPrecision::k,
               Turn,
               {kOut, kDq}},
        Change{"TurnedP",
               kTileAttention,
               &AttentionPrecision::p,
               Turn,
               {kOut, kDv}},
        Change{"TurnedV", kTileAttention, &AttentionPrecision::v, Turn, {kOut}},
        Change{"TurnedDo",
               kTileAttention,
               &AttentionPrecision::d_out,
               Turn,
               {kDv}},
        Change{"TurnedDs",
               kTileAttention,
               &AttentionPrecision::d_scores,
               Turn,
               {kDq, kDk}},
        Change{"OtherBits",
               kFp4Attention,
               &AttentionPrecision::p,
               OneBitLess,
               {kOut}},
        Change{"ToNearest",
               kCutAttention,
               &AttentionPrecision::p,
               ToNearest,
               {kOut}}),
    [](const auto& change) { return std::string(change.param.name); });

TEST(QuantisedAttention, IsFoundWithBitsOfAnotherSeed) {
  FirstStep step = StepOf(RecipeFrom(kFp4Attention));
  ASSERT_EQ(step.Others(), 0);

  step.ExpectSeed(2);

  EXPECT_GT(step.Others(), 100);
}

// The mean of dS is that of what multiplied V, as rowsum(dO O) has it.
TEST(QuantisedAttention, CutProbabilitiesShowInTheGradientsOfScores) {
  Recipe nothing;
  nothing.name = "nothing";

  const auto others = Findings(RecipeFrom(kCutAttention), nothing);

  EXPECT_GT(others.at(kCore + kOut), 10);
  EXPECT_GT(others.at(kCore + kDq), 10);
  EXPECT_EQ(others.at(kCore + kDv), 0) << "dV is of high precision";
}

/// Gradient of the last norm's input, computed again with other gains.
void ComputeDx(FirstStep& step, MatrixView<const float> gain) {
  const StepRecord& record = step.record();
  const auto values = [&](const char* name) {
    return record.At(name).values.view();
  };
  const MatrixView<const float> x = values("layers.1_output");
  const std::span<const float> weight(gain.data(), gain.cols());
  Executor executor(1);
  Matrix<float> y(x.rows(), x.cols());
  std::vector<float> rstd(x.rows());
  std::vector<float> dweight(x.cols());
  kernels::RmsNormForward(x, weight, 1e-5f, kernels::Rounding::kBf16, y.view(),
                          rstd, executor);
  kernels::RmsNormBackward(
      {x, weight, rstd, values("norm_gradient"), kernels::Rounding::kBf16,
       /*add=*/false,
       step.record().MutableAt("layers.1_gradient").values.view(), dweight},
      executor);
}

TEST(QuantisedGains, AreFoundUnquantisedBackward) {
  const Recipe recipe = RecipeFrom(kMxGains);
  FirstStep step = StepOf(recipe);
  const auto others = [&] {
    ReportSink sink;
    step.Check(sink);
    return sink.comparisons().at("layers.1_gradient").other();
  };
  ASSERT_EQ(others(), 0);

  ComputeDx(step, step.record().At("norm_weight").values.view());

  EXPECT_GT(others(), 100);
}

TEST(QuantisedGains, AreFoundInOtherBlocks) {
  Recipe asked = RecipeFrom(kMxGains);
  asked.norm_gains = RecipeFrom(kTileAttention).attention.q;
  Recipe ran = asked;
  ran.norm_gains->cell = {1, 32};

  const auto others = Findings(ran, asked);

  EXPECT_GT(others.at("norm_output"), 100);
  EXPECT_GT(others.at("layers.1_gradient"), 100);
}

TEST(AsKnown, ClearsAttentionAndGainsOfKnownNames) {
  Recipe recipe = RecipeFrom(kTeAttention);
  recipe.norm_gains = RecipeFrom(kMxGains).norm_gains;
  EXPECT_TRUE(AsKnown(recipe).attention == recipe.attention);
  EXPECT_EQ(AsKnown(recipe).norm_gains, recipe.norm_gains);

  recipe.name = "bf16";

  EXPECT_FALSE(AsKnown(recipe).quantizes_anything());
}

}  // namespace
}  // namespace isoloss::step_checks::outside_recipes_test
