// Linear layers of a trainer: right ones pass under every MX recipe, and
// planted mistakes are found and named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "isoloss/operations/catalogue.h"
#include "isoloss/operations/check.h"
#include "isoloss/precision/operands.h"
#include "operations/checks.h"
#include "operations/samples.h"
#include "support/expect_refused.h"

namespace isoloss::operations::linear_check_test {
namespace {

using formats::ScaleRule;
using precision::GemmRole;
using precision::LinearPrecision;
using precision::MxOperand;
using precision::RecipeByName;
using test_support::AddCodes;
using test_support::Compute;
using test_support::GroupedInputs;
using test_support::LinearInputs;
using test_support::Random;

std::vector<Finding> Check(const Operation& operation,
                           const std::string& recipe = "mxfp8_rceil",
                           const Operation* previous = nullptr) {
  Executor executor(1);
  std::vector<OperationFile> files;
  if (previous != nullptr) {
    files.push_back({.path = "1", .step = 1, .operations = {*previous}});
  }
  files.push_back({.path = "2", .step = 2, .operations = {operation}});
  for (const OperationFile& file : files) CheckExtents(file);
  std::vector<Finding> findings =
      CheckOperations(files, RecipeByName(recipe), {}, executor);
  std::erase_if(findings,
                [&](const Finding& f) { return f.file + 1 != files.size(); });
  return findings;
}

std::vector<Trial> TrialsNamed(const Product& product, const SideNames& names,
                               const std::string& name) {
  std::vector<Trial> trials =
      TrialsOf(product, names, oracle::Comparison(oracle::Grid::kBf16));
  std::erase_if(trials, [&](const Trial& t) { return t.name != name; });
  return trials;
}

class RightLayer : public ::testing::TestWithParam<std::string> {};

TEST_P(RightLayer, HasNoOthersUnderItsRecipe) {
  const precision::Recipe& recipe = RecipeByName(GetParam());
  Operation linear = LinearInputs();
  Compute(recipe, linear);
  if (recipe.quantizes()) AddCodes(recipe, linear);
  Operation grouped = GroupedInputs();
  Compute(recipe, grouped);

  for (const Operation& operation : {linear, grouped}) {
    const std::vector<Finding> findings = Check(operation, GetParam());

    EXPECT_GE(findings.size(), 3U);
    for (const Finding& finding : findings) {
      EXPECT_EQ(finding.comparison.other(), 0)
          << operation.type << " " << finding.part;
      EXPECT_GT(finding.comparison.elements(), 0) << finding.part;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    OfMxRecipes, RightLayer,
    ::testing::Values("bf16", "mxfp8_rceil", "mxfp8_rceil_wgrad_with_hp",
                      "mxfp8_floor", "mxfp8_e5m2_grads", "mxfp4_floor",
                      "mxfp8_cublas", "mxfp8_cublas_rceil", "mxfp6_e3m2",
                      "mxfp6_e2m3", "te_mxfp8", "te_mxfp8_2d"));

TEST(LinearCheck, ResultsMayBeFp16) {
  const precision::Recipe& recipe = RecipeByName("mxfp8_rceil");
  Operation operation = LinearInputs();
  Compute(recipe, operation);
  const formats::Format& fp16 = formats::FormatByName("fp16");
  Floats& dw = operation.floats["grad_weight"];
  ASSERT_EQ(dw.type, "float32");
  dw.type = "float16";
  for (float& value : dw.values) {
    value = formats::RoundToFormat(fp16, value, formats::Overflow::kNonFinite);
  }

  EXPECT_TRUE(Part(Check(operation), "wgrad").is_right());

  dw.values[5] = dw.values[5] * (1 + 0x1p-9f);
  EXPECT_EQ(Part(Check(operation), "wgrad").comparison.other(), 1);
}

// Planted by the formats' own code, not by the catalogue's.

TEST(LinearMistakes, AnotherScaleRuleIsNamed) {
  Operation operation = LinearInputs();
  LinearPrecision planted = RecipeByName("mxfp8_rceil");
  planted.fprop.left = MxOperand("e4m3", ScaleRule::kFloor);
  Compute(planted, operation);
  AddCodes(planted, operation);

  const auto findings = Check(operation);

  ExpectNamed(findings, "fprop", "scale_floor.x");
  ExpectNamed(findings, "fprop_x codes", "scale_floor.fprop_x");
  EXPECT_TRUE(Part(findings, "fprop_w codes").is_right());
  EXPECT_TRUE(Part(findings, "dgrad").is_right());
  EXPECT_TRUE(Part(findings, "wgrad").is_right());
}

TEST(LinearMistakes, AnotherElementIsNamed) {
  Operation operation = LinearInputs();
  LinearPrecision planted = RecipeByName("mxfp8_rceil");
  planted.dgrad.left = MxOperand("e5m2", ScaleRule::kRceil);
  Compute(planted, operation);

  ExpectNamed(Check(operation), "dgrad", "element_e5m2.grad_output");
}

TEST(LinearMistakes, OperandsThatStayedAsTheyWereAreNamed) {
  Operation operation = LinearInputs();
  LinearPrecision planted = RecipeByName("mxfp8_rceil");
  planted.fprop.right.reset();
  planted.wgrad = {};
  Compute(planted, operation);

  const auto findings = Check(operation);

  ExpectNamed(findings, "fprop", "unquantized.weight");
  ExpectNamed(findings, "wgrad", "unquantized.both");
}

TEST(LinearMistakes, QuantisedModulesThatPatternsLeaveOutAreNamed) {
  Operation operation = LinearInputs();
  Compute(RecipeByName("mxfp8_rceil"), operation);
  Executor executor(1);
  const std::vector<OperationFile> files = {
      {.path = "1", .operations = {operation}}};

  const auto findings =
      CheckOperations(files, RecipeByName("mxfp8_rceil"),
                      {.exclude = {"=" + operation.module}}, executor);

  ExpectNamed(findings, "fprop", "quantized.both");
  ExpectNamed(findings, "dgrad", "quantized.both");
  ExpectNamed(findings, "wgrad", "quantized.both");
}

TEST(ModuleChoices, SaysWhatDecidedAboutEachModule) {
  std::vector<OperationFile> files = {{.path = "1"}};
  for (const char* module : {"mlp.fc1", "attention.wq", "attention.wq2"}) {
    files[0].operations.push_back(LinearInputs());
    files[0].operations.back().module = module;
  }
  const precision::Recipe& recipe = RecipeByName("mxfp8_rceil");
  const auto reasons = [&](const CheckOptions& options) {
    std::vector<std::string> found;
    const ModuleChoices choices(files, recipe, options);
    for (const ModuleChoice& choice : choices.all()) {
      found.push_back((choice.quantized ? "+ " : "- ") + choice.reason);
    }
    return found;
  };

  EXPECT_THAT(reasons({}), ::testing::ElementsAre("+ included by `attention`",
                                                  "+ included by `attention`",
                                                  "- not included"));
  EXPECT_THAT(reasons({.include = {"=attention.wq", "fc1"}}),
              ::testing::ElementsAre("+ included by `=attention.wq`",
                                     "- not included", "+ included by `fc1`"));
  EXPECT_THAT(reasons({.exclude = {"wq2"}}),
              ::testing::ElementsAre("+ included by `attention`",
                                     "- excluded by `wq2`", "- not included"));
  EXPECT_EQ(ModuleChoices(files, recipe, {.include = {"wq"}}).remarks().size(),
            1U);
  test_support::ExpectRefused(
      [&] {
        reasons({.include = {"wq", "w1"}});
      },
      "`w1` matches none of the 3 linear modules");
  test_support::ExpectRefused([&] { reasons({.exclude = {"=attention"}}); },
                              "`=attention` matches none");
}

TEST(LinearMistakes, ColumnwiseValuesMadeOfRowwiseOnesAreNamed) {
  Operation operation = LinearInputs();
  const precision::Recipe& recipe = RecipeByName("mxfp8_rceil");
  // Scales are powers of two, so that only subnormal elements lose bits twice.
  for (size_t i = 0; i < operation.floats["x"].values.size(); i += 5) {
    operation.floats["x"].values[i] *= 0x1p-9f;
  }
  Compute(recipe, operation);
  Operation rowwise = operation;
  Floats& x = rowwise.floats["x"];
  const Matrix<float> values =
      test_support::OperandValues(x.Rows(), false, recipe.fprop.left);
  x.values.assign(values.data(), values.data() + values.size());
  Compute(recipe, rowwise);
  operation.floats["grad_weight"] = rowwise.floats["grad_weight"];

  ExpectNamed(Check(operation), "wgrad", "quantized_twice.x");
}

TEST(LinearMistakes, AStaleWeightIsNamedIfItsStepIsGiven) {
  Operation before = LinearInputs();
  before.floats["weight"] =
      Random({test_support::kOut, test_support::kIn}, "before");
  Compute(RecipeByName("mxfp8_rceil"), before);
  Operation operation = LinearInputs();
  Compute(RecipeByName("mxfp8_rceil"), operation);
  operation.floats["output"] = before.floats["output"];

  const auto findings = Check(operation, "mxfp8_rceil", &before);
  const auto alone = Check(operation);

  ExpectNamed(findings, "fprop", "stale.weight");
  EXPECT_FALSE(Part(alone, "fprop").explanation);
}

TEST(LinearMistakes, SwappedExpertsAreNamed) {
  Operation operation = GroupedInputs();
  Operation swapped = operation;
  auto& values = swapped.floats["weight"].values;
  const size_t size = test_support::kOut * test_support::kIn;
  std::swap_ranges(values.begin(), values.begin() + size,
                   values.begin() + 3 * size);
  Compute(RecipeByName("mxfp8_rceil"), operation);
  Compute(RecipeByName("mxfp8_rceil"), swapped);
  operation.floats["output"] = swapped.floats["output"];

  ExpectNamed(Check(operation), "fprop", "experts_swapped");
}

TEST(LinearMistakes, AMissingExpertIsNamed) {
  Operation operation = GroupedInputs();
  Compute(RecipeByName("mxfp8_rceil"), operation);
  auto& output = operation.floats["output"].values;
  std::fill(output.begin() + 20 * test_support::kOut,
            output.begin() + 49 * test_support::kOut, 0.0f);

  ExpectNamed(Check(operation), "fprop", "expert_missing");
}

TEST(LinearMistakes, AResultOfZerosHasNoExpertsThatLack) {
  Operation operation = LinearInputs();
  Compute(RecipeByName("mxfp8_rceil"), operation);
  std::ranges::fill(operation.floats["output"].values, 0.0f);

  ExpectNamed(Check(operation), "fprop", "rows_zero");
}

TEST(LinearMistakes, TheFactorOfOneExpertIsNamed) {
  Operation operation = GroupedInputs();
  Compute(RecipeByName("mxfp8_rceil"), operation);
  const size_t size = test_support::kOut * test_support::kIn;
  auto& gradient = operation.floats["grad_weight"].values;
  for (size_t i = 2 * size; i < 3 * size; ++i) gradient[i] *= 2.0f;
  auto& input = operation.floats["grad_input"].values;
  for (size_t i = 0; i < 20 * test_support::kIn; ++i) input[i] *= 0.5f;

  const auto findings = Check(operation);

  ExpectNamed(findings, "wgrad", "rows_scaled");
  ExpectNamed(findings, "dgrad", "rows_scaled");
  EXPECT_EQ(Part(findings, "dgrad").explanation->sentence,
            "the results of rows 0, 1, 2, 3, 4, 5, 6, 7 and 12 more were "
            "multiplied by 0.5");
}

TEST(LinearMistakes, OneRoundingOfAGradientIsNoChain) {
  Operation operation = LinearInputs();  // of 64 tokens
  Compute(RecipeByName("bf16"), operation);
  for (float& value : operation.floats["grad_weight"].values) {
    value = formats::RoundToBf16(value);
  }

  ExpectNamed(Check(operation, "bf16"), "wgrad", "output_bf16");
}

TEST(LinearMistakes, TransposedScalesAreNamed) {
  Operation operation = LinearInputs();
  const precision::Recipe& recipe = RecipeByName("mxfp8_rceil");
  Compute(recipe, operation);
  AddCodes(recipe, operation);
  Codes& scales = operation.codes["fprop_x_scales"];
  const Codes right = scales;
  const size_t rows = scales.extent[0];
  const size_t cols = scales.extent[1];
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      scales.values[c * rows + r] = right.values[r * cols + c];
    }
  }

  const auto findings = Check(operation);

  ExpectNamed(findings, "fprop_x scales", "scale_stored_transposed.fprop_x");
  EXPECT_TRUE(Part(findings, "fprop_x codes").is_right());
  EXPECT_TRUE(Part(findings, "fprop").is_right());
}

TEST(LinearMistakes, ScalesOfATenthOfTheMaximaAreNamed) {
  Operation operation = LinearInputs();
  const precision::Recipe& recipe = RecipeByName("fp8_rowwise");
  Compute(recipe, operation);
  const MatrixView<const float> x = operation.Find("x")->Rows();
  Side side = {.values = x, .quantization = recipe.fprop.left};
  ASSERT_TRUE(FollowMaxima(0.1, side));
  const auto tensor = Quantized(side);
  ASSERT_TRUE(tensor);
  Floats& output = operation.floats["output"];
  test_support::Multiply(
      oracle::ScalarDequantize(*tensor, x.cols()),
      test_support::OperandValues(operation.Find("weight")->Rows(), false,
                                  recipe.fprop.right),
      output.type == "bfloat16", output.values.data());

  ExpectNamed(Check(operation, "fp8_rowwise"), "fprop", "maxima_scaled.x");
}

TEST(LinearMistakes, SumsInBf16AreNamed) {
  Operation operation = LinearInputs();
  Compute(RecipeByName("mxfp8_rceil"), operation);
  const Matrix<float> x = test_support::OperandValues(
      operation.Find("x")->Rows(), false, MxOperand("e4m3", ScaleRule::kRceil));
  const Matrix<float> w =
      test_support::OperandValues(operation.Find("weight")->Rows(), false,
                                  MxOperand("e4m3", ScaleRule::kRceil));
  for (size_t i = 0; i < x.rows(); ++i) {
    for (size_t j = 0; j < w.rows(); ++j) {
      float outer = 0.0f;
      for (size_t begin = 0; begin < x.cols(); begin += 32) {
        float sum = 0.0f;
        for (size_t k = begin; k < begin + 32; ++k) sum += x(i, k) * w(j, k);
        outer = formats::RoundToBf16(outer + sum);
      }
      operation.floats["output"].values[i * w.rows() + j] = outer;
    }
  }

  const auto findings = Check(operation);

  ASSERT_TRUE(Part(findings, "fprop").explanation);
  EXPECT_EQ(Part(findings, "fprop").explanation->name, "sums_bf16_32");
}

TEST(LinearMistakes, ABiasMayBeAddedToTheRoundedProduct) {
  Operation operation = LinearInputs();
  operation.floats["bias"] =
      Random({test_support::kOut}, "bias", "bfloat16", 4.0);
  Compute(RecipeByName("mxfp8_rceil"), operation);
  Operation without = operation;
  Floats& output = operation.floats["output"];
  for (size_t i = 0; i < output.values.size(); ++i) {
    output.values[i] = formats::RoundToBf16(
        output.values[i] +
        operation.floats["bias"].values[i % test_support::kOut]);
  }

  EXPECT_TRUE(Part(Check(operation), "fprop").is_right());
  ExpectNamed(Check(without), "fprop", "bias_missing");
}

TEST(LinearMistakes, NameTheTermThatWasMultiplied) {
  const Operation inputs = LinearInputs();
  Operation operation = inputs;
  Compute(RecipeByName("mxfp8_rceil"), operation);
  const Floats bias = Random({test_support::kOut}, "bias", "bfloat16", 4.0);
  operation.floats["bias"] = bias;
  Floats& output = operation.floats["output"];
  const std::vector<float> rounded = output.values;
  const auto make = [&](float product, float times) {
    for (size_t i = 0; i < rounded.size(); ++i) {
      output.values[i] =
          product * rounded[i] + times * bias.values[i % test_support::kOut];
    }
    output.type = "float32";  // of sums on BF16's grid
    for (float& y : output.values) y = formats::RoundToBf16(y);
    output.type = "bfloat16";
  };
  make(1, 3);
  ExpectNamed(Check(operation), "fprop", "bias_scaled");
}

TEST(LinearMistakes, NameRowsThatStandElsewhere) {
  Operation operation = LinearInputs();
  Compute(RecipeByName("mxfp8_rceil"), operation);
  std::vector<float>& output = operation.floats["output"].values;
  std::swap_ranges(output.begin(), output.begin() + test_support::kOut,
                   output.begin() + 7 * test_support::kOut);

  ExpectNamed(Check(operation), "fprop", "wrong_rows");
  EXPECT_EQ(Part(Check(operation), "fprop").explanation->sentence,
            "in rows 0, 7 stand the results of rows 7, 0");
}

TEST(Catalogue, NamesEachTrialOnce) {
  const Operation operation = LinearInputs();
  const Product product = {.output = operation.Find("x")->Rows(), .groups = {}};
  std::set<std::string> names;

  for (const Trial& trial : TrialsOf(product, {"x", "weight"},
                                     oracle::Comparison(oracle::Grid::kBf16))) {
    EXPECT_TRUE(names.insert(trial.name).second) << trial.name;
    EXPECT_THAT(trial.sentence, ::testing::Not(::testing::EndsWith(".")));
  }
  EXPECT_EQ(TrialsNamed(product, {"x", "weight"}, "stale.x").size(), 1U);
}

}  // namespace
}  // namespace isoloss::operations::linear_check_test
