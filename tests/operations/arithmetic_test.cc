// Results of tensor cores: the adder is found, and wrong elements are told
// under it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/kernels/fused_sum.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/operations/check.h"
#include "isoloss/operations/predicted_sums.h"
#include "operations/checks.h"
#include "operations/samples.h"

namespace isoloss::operations::arithmetic_test {
namespace {

using precision::Recipe;
using precision::RecipeByName;
using test_support::Zeros;
using ::testing::HasSubstr;

const kernels::Accumulation kPromoted = {
    &kernels::AccumulatorByName("hopper_f13"), 128};

/// Normal numbers on BF16's grid, as trainings have them.
Floats Normal(size_t rows, size_t cols, const char* name) {
  const CounterRng rng(23, StreamId(name));
  Floats floats = {.extent = {rows, cols}, .values = {}, .type = "bfloat16"};
  for (size_t i = 0; i < rows * cols; ++i) {
    double sum = -6.0;
    for (const uint32_t bits : rng.Block(3 * i)) sum += bits * 0x1p-32;
    for (const uint32_t bits : rng.Block(3 * i + 1)) sum += bits * 0x1p-32;
    for (const uint32_t bits : rng.Block(3 * i + 2)) sum += bits * 0x1p-32;
    floats.values.push_back(formats::RoundToBf16(static_cast<float>(sum)));
  }
  return floats;
}

/// A layer with an input, a weight and a result, which is not computed yet.
Operation Layer(size_t depth, const char* type = "bfloat16",
                const std::string& module = "layers.0.wq") {
  constexpr size_t kRows = 512;
  constexpr size_t kCols = 192;
  Operation layer = {.type = "linear", .module = module};
  layer.floats["x"] = Normal(kRows, depth, "x");
  layer.floats["weight"] = Normal(kCols, depth, "weight");
  layer.floats["output"] = Zeros({kRows, kCols}, type);
  return layer;
}

Product FpropOf(const Operation& layer, const Recipe& recipe) {
  ProductGroup group;
  group.left = {.values = layer.Find("x")->Rows(),
                .quantization = recipe.fprop.left};
  group.right = {.values = layer.Find("weight")->Rows(),
                 .quantization = recipe.fprop.right};
  return {.output = layer.Find("output")->Rows(), .groups = {group}};
}

/// Fills the result with sums by the kernels, through `finish`.
void Multiply(const Recipe& recipe, const kernels::Accumulation& accumulation,
              Operation& layer) {
  const Product product = FpropOf(layer, recipe);
  const auto quantization = [](const Side& side) {
    return side.quantization ? &*side.quantization : nullptr;
  };
  const ProductGroup& group = product.groups[0];
  Floats& output = layer.floats["output"];
  Matrix<float> c(output.extent[0], output.extent[1]);
  kernels::Gemm({.a = {.values = group.left.values,
                       .quantization = quantization(group.left)},
                 .b = {.values = group.right.values,
                       .quantization = quantization(group.right)},
                 .c = c.view(),
                 .rounding = output.type == "bfloat16"
                                 ? kernels::Rounding::kBf16
                                 : kernels::Rounding::kFp32,
                 .accumulation = accumulation});
  output.values.assign(c.data(), c.data() + c.size());
}

/// Fills the result with the sums of parts of the steps, through `add`.
void MultiplyParts(
    const kernels::Accumulator& accumulator, const std::vector<size_t>& ends,
    const std::function<float(const std::vector<float>& parts)>& add,
    Operation& layer) {
  const MatrixView<const float> x = layer.Find("x")->Rows();
  const MatrixView<const float> weight = layer.Find("weight")->Rows();
  Floats& output = layer.floats["output"];
  const bool is_bf16 = output.type == "bfloat16";
  for (size_t i = 0; i < x.rows(); ++i) {
    for (size_t j = 0; j < weight.rows(); ++j) {
      std::vector<float> parts;
      size_t k = 0;
      for (const size_t end : ends) {
        float& sum = parts.emplace_back(0.0f);
        for (; k < end; k += accumulator.steps) {
          sum = kernels::FusedSum(accumulator, sum, {x.Row(i) + k, nullptr},
                                  {weight.Row(j) + k, nullptr},
                                  std::min(accumulator.steps, end - k));
        }
      }
      const float sum = add(parts);
      output.values[i * weight.rows() + j] =
          is_bf16 ? formats::RoundToBf16(sum) : sum;
    }
  }
}

Finding CheckLayer(const Operation& layer, const std::string& recipe,
                   const CheckOptions& options = {}) {
  Executor executor(1);
  const std::vector<OperationFile> files = {
      {.path = "f", .operations = {layer}}};
  return Part(CheckOperations(files, RecipeByName(recipe), options, executor),
              "fprop");
}

struct AdderCase {
  const char* recipe;
  const char* accumulator;
  size_t interval;
  const char* type;
  const char* text;
};

class Adders : public ::testing::TestWithParam<AdderCase> {};

TEST_P(Adders, AreFoundByTheirBits) {
  const AdderCase& of = GetParam();
  Operation layer = Layer(512, of.type);
  Multiply(RecipeByName(of.recipe),
           {&kernels::AccumulatorByName(of.accumulator), of.interval}, layer);

  const Finding finding = CheckLayer(layer, of.recipe);

  EXPECT_EQ(finding.sums, of.text);
  EXPECT_EQ(finding.comparison.Row().equal, finding.comparison.elements());
}

INSTANTIATE_TEST_SUITE_P(
    OfAllCards, Adders,
    ::testing::Values(
        AdderCase{"bf16", "hopper_bf16", 0, "bfloat16",
                  "Hopper and Blackwell BF16 tensor cores, one chain"},
        AdderCase{"bf16", "hopper_bf16", 0, "float32",
                  "Hopper and Blackwell BF16 tensor cores, one chain"},
        AdderCase{"bf16", "ampere_bf16", 0, "float32",
                  "Ampere and Ada BF16 tensor cores, one chain"},
        AdderCase{"bf16", "cdna3_bf16", 0, "float32",
                  "CDNA3 BF16 tensor cores, one chain"},
        AdderCase{"fp8_rowwise", "hopper_f13", 0, "bfloat16",
                  "Hopper FP8 tensor cores, one chain"},
        AdderCase{"fp8_rowwise", "hopper_f13", 128, "bfloat16",
                  "Hopper FP8 tensor cores, promoted every 128 steps"},
        AdderCase{"fp8_rowwise", "ada_fp8", 0, "bfloat16",
                  "Ada FP8 tensor cores, one chain"},
        AdderCase{"te_fp8_current", "hopper_f13", 0, "bfloat16",
                  "Hopper FP8 tensor cores, one chain"},
        AdderCase{"deepseek_v3_fp8", "hopper_f13", 128, "bfloat16",
                  "Hopper FP8 tensor cores, promoted every 128 steps"},
        AdderCase{"mxfp8_rceil", "hopper_bf16", 0, "float32",
                  "Hopper and Blackwell BF16 tensor cores, one chain"}),
    [](const auto& info) {
      return fmt::format("{}_{}_{}_{}", info.param.recipe,
                         info.param.accumulator, info.param.interval,
                         info.param.type);
    });

TEST(AdderSearch, NamesAddersThatItCannotTellApart) {
  const Recipe& recipe = RecipeByName("mxfp8_rceil");
  Operation layer = Layer(512, "float32");
  Multiply(recipe, {&kernels::AccumulatorByName("blackwell_f25")}, layer);

  const Finding finding = CheckLayer(layer, "mxfp8_rceil");

  EXPECT_EQ(finding.comparison.other(), 0);
  std::vector<std::string> all = finding.sums_alike;
  all.push_back(finding.sums);
  EXPECT_THAT(all, ::testing::Contains(
                       "Blackwell FP8 and MXFP8 tensor cores, one chain"));
}

TEST(AdderSearch, LeavesFp32SumsAlone) {
  for (const char* type : {"bfloat16", "float32"}) {
    for (const char* recipe : {"bf16", "mxfp8_rceil", "fp8_rowwise"}) {
      Operation layer = Layer(512, type);
      Multiply(RecipeByName(recipe), {}, layer);

      const Finding finding = CheckLayer(layer, recipe);

      EXPECT_EQ(finding.sums, "") << recipe << " " << type;
      EXPECT_FALSE(finding.has_unknown_order);
      EXPECT_TRUE(finding.is_right()) << recipe << " " << type;
    }
  }
}

TEST(AdderSearch, LeavesScaledFp32SumsAlone) {
  // Sums of FP8 codes are nearly exact, so that only the scales round.
  const Recipe& recipe = RecipeByName("te_fp8_current");
  Operation layer = Layer(256, "float32");
  layer.floats["x"].values[0] = 5.3125F;
  const Product product = FpropOf(layer, recipe);
  PredictedSums sums(
      product.groups[0],
      {{&kernels::AccumulatorByName("hopper_bf16")}, ResultScale::kLeft});
  Floats& output = layer.floats["output"];
  for (size_t i = 0; i < output.values.size(); ++i) {
    output.values[i] = sums.ChainAt(i / 192, i % 192);
  }

  const Finding finding = CheckLayer(layer, "te_fp8_current");

  EXPECT_EQ(finding.sums, "");
  EXPECT_TRUE(finding.is_right());
}

TEST(AdderSearch, FindsHowPiecesAreScaled) {
  // DeepSeek's published kernel multiplies sums of 128 steps by one scale after
  // the other.
  const Recipe& recipe = RecipeByName("deepseek_v3_fp8");
  for (const ResultScale scale :
       {ResultScale::kPieceLeft, ResultScale::kPieceApart,
        ResultScale::kPieceLeftApart}) {
    Operation layer = Layer(384, "float32");
    const Product product = FpropOf(layer, recipe);
    const PredictedSums sums(product.groups[0], {kPromoted, scale});
    Floats& output = layer.floats["output"];
    for (size_t i = 0; i < output.values.size(); ++i) {
      output.values[i] = sums.At(i / 192, i % 192);
    }

    const Finding finding = CheckLayer(layer, "deepseek_v3_fp8");

    EXPECT_EQ(finding.sums,
              "Hopper FP8 tensor cores, promoted every 128 steps");
    EXPECT_TRUE(finding.is_right());
  }
}

TEST(AdderSearch, ObeysWhoDemandsFp32) {
  Operation layer = Layer(512);
  Multiply(RecipeByName("fp8_rowwise"),
           {&kernels::AccumulatorByName("hopper_f13")}, layer);
  CheckOptions options;
  options.demands_fp32 = true;

  const Finding finding = CheckLayer(layer, "fp8_rowwise", options);

  EXPECT_FALSE(finding.is_right());
  ASSERT_TRUE(finding.explanation);
  EXPECT_EQ(finding.explanation->name, "sums_hopper_f13");
}

TEST(AdderSearch, ObeysARecipeThatDeclaresAnAdder) {
  Recipe recipe = RecipeByName("fp8_rowwise");
  recipe.fprop.accumulation = {kPromoted.accumulator};
  Operation layer = Layer(512);
  for (const size_t interval : {0, 128}) {
    Multiply(recipe, {kPromoted.accumulator, interval}, layer);
    Executor executor(1);

    const Finding finding =
        Part(CheckOperations({{.path = "f", .operations = {layer}}}, recipe, {},
                             executor),
             "fprop");

    EXPECT_EQ(finding.is_right(), interval == 0);
    EXPECT_EQ(finding.sums, "Hopper FP8 tensor cores, one chain");
    if (interval == 0) continue;
    ASSERT_TRUE(finding.explanation);
    EXPECT_EQ(finding.explanation->name, "sums_hopper_f13_128");
  }
}

/// Two layers: one chain shows the card, the other is split along k.
std::vector<Finding> CheckSplit(
    const std::vector<size_t>& ends,
    const std::function<float(const std::vector<float>& parts)>& add,
    const char* type) {
  const kernels::Accumulator& accumulator =
      kernels::AccumulatorByName("hopper_bf16");
  Operation chain = Layer(512, "float32");
  Multiply(RecipeByName("bf16"), {&accumulator}, chain);
  Operation split = Layer(ends.back(), type, "layers.0.wk");
  MultiplyParts(accumulator, ends, add, split);
  Executor executor(1);
  return CheckOperations({{.path = "f", .operations = {chain, split}}},
                         RecipeByName("bf16"), {}, executor);
}

float InOrder(const std::vector<float>& parts) {
  float sum = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) sum += parts[i];
  return sum;
}

float ByHalves(const std::vector<float>& parts) {
  return (parts[0] + parts[2]) + (parts[1] + parts[3]);
}

TEST(SplitK, IsFoundByItsBits) {
  for (const char* type : {"bfloat16", "float32"}) {
    const auto equal = CheckSplit({256, 512, 768, 1024}, InOrder, type);
    EXPECT_EQ(equal[1].sums,
              "Hopper and Blackwell BF16 tensor cores, one chain, split along "
              "k into parts of 256 steps, added in order");
    EXPECT_EQ(equal[1].comparison.other(), 0);

    const auto longer = CheckSplit({384, 704, 1024}, InOrder, type);
    EXPECT_THAT(longer[1].sums, HasSubstr("parts of 320 or 384 steps"));
    EXPECT_EQ(longer[1].comparison.other(), 0);
  }
  const auto halves = CheckSplit({256, 512, 768, 1024}, ByHalves, "float32");
  EXPECT_THAT(halves[1].sums, HasSubstr("by halves"));
  EXPECT_EQ(halves[1].comparison.other(), 0);
}

TEST(SplitK, OfUnknownOrderIsJudgedAsAnyOrder) {
  for (const char* type : {"bfloat16", "float32"}) {
    const auto findings = CheckSplit({304, 352, 1024}, InOrder, type);
    EXPECT_EQ(findings[1].sums, "") << type;
    EXPECT_TRUE(findings[1].has_unknown_order) << type;
    EXPECT_TRUE(findings[1].is_right()) << type;
    EXPECT_EQ(findings[0].comparison.Row().equal,
              findings[0].comparison.elements());
  }
}

TEST(SplitK, WrongElementsAreNoOrder) {
  const kernels::Accumulator& accumulator =
      kernels::AccumulatorByName("hopper_bf16");
  Operation layer = Layer(512);
  Multiply(RecipeByName("bf16"), {&accumulator}, layer);
  std::vector<float>& values = layer.floats["output"].values;
  for (size_t i = 5; i < values.size(); i += 19001) {
    values[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(values[i]) ^
                                     uint32_t{1} << 18);
  }

  const Finding finding = CheckLayer(layer, "bf16");

  EXPECT_EQ(finding.comparison.other(), 6);
  EXPECT_THAT(finding.remark, HasSubstr("all in bit 2"));
  EXPECT_THAT(finding.remark, HasSubstr("Hopper and Blackwell BF16"));
}

/// Flips a bit of each FP32 word in rows first, first + stride, ...
void FlipRows(size_t first, size_t stride, int bit, Floats& output) {
  for (size_t row = first; row < output.extent[0]; row += stride) {
    for (size_t col = 0; col < output.extent[1]; ++col) {
      float& value = output.values[row * output.extent[1] + col];
      value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ uint32_t{1}
                                                                        << bit);
    }
  }
}

/// A healthy layer shows the card; `other` is judged beside it.
std::vector<Finding> CheckBeside(const Operation& healthy,
                                 const Operation& other,
                                 const std::string& recipe) {
  Executor executor(1);
  return CheckOperations({{.path = "f", .operations = {healthy, other}}},
                         RecipeByName(recipe), {}, executor);
}

TEST(SplitK, OfFp8InUnknownPartsLosesAsManyBits) {
  const Recipe& recipe = RecipeByName("fp8_rowwise");
  Operation chain = Layer(512);
  Multiply(recipe, kPromoted, chain);
  // These parts are of no known kernel.
  Operation split = Layer(512, "bfloat16", "layers.0.wk");
  Multiply(recipe, {kPromoted.accumulator, 160}, split);

  const auto findings = CheckBeside(chain, split, "fp8_rowwise");

  EXPECT_FALSE(findings[0].has_unknown_order);
  EXPECT_TRUE(findings[1].is_right());
  EXPECT_TRUE(findings[1].has_unknown_order);
  EXPECT_EQ(findings[1].coarse_cores, "Hopper FP8");

  // A factor of as small an effect is a mistake.
  for (float& value : split.floats["output"].values) {
    value = formats::RoundToBf16(value * 1.002F);
  }
  EXPECT_FALSE(CheckBeside(chain, split, "fp8_rowwise")[1].is_right());
}

TEST(SickLane, OfTheLastBitIsNoUnknownOrder) {
  struct Case {
    const char* recipe;
    kernels::Accumulation accumulation;
    const char* type;
    int bit;
    size_t stride;
  };
  const kernels::Accumulation bf16 = {
      &kernels::AccumulatorByName("hopper_bf16")};
  for (const Case& of : {Case{"bf16", bf16, "float32", 0, 8},
                         Case{"bf16", bf16, "float32", 0, 1},
                         Case{"fp8_rowwise", kPromoted, "bfloat16", 16, 8}}) {
    Operation healthy = Layer(512, of.type);
    Multiply(RecipeByName(of.recipe), of.accumulation, healthy);
    Operation sick = healthy;
    sick.module = "layers.0.wk";
    FlipRows(0, of.stride, of.bit, sick.floats["output"]);

    const auto findings = CheckBeside(healthy, sick, of.recipe);

    EXPECT_TRUE(findings[0].is_right());
    EXPECT_EQ(findings[1].comparison.other(), 512 * 192 / of.stride)
        << of.recipe << " " << of.type << " " << of.stride;
    EXPECT_FALSE(findings[1].explanation);
    // A lane that is sick in all products is told, too.
    const auto both = CheckBeside(sick, sick, of.recipe);
    EXPECT_EQ(both[0].is_right(), of.stride == 1) << of.recipe << of.type;
  }
}

TEST(SickLane, IsTold) {
  Operation layer = Layer(512, "float32");
  Multiply(RecipeByName("fp8_rowwise"),
           {&kernels::AccumulatorByName("hopper_f13"), 128}, layer);
  FlipRows(6, 8, 21, layer.floats["output"]);

  const Finding finding = CheckLayer(layer, "fp8_rowwise");

  EXPECT_EQ(finding.comparison.other(), 64 * 192);
  EXPECT_THAT(finding.remark, HasSubstr("all in bit 21"));
  EXPECT_THAT(finding.remark, HasSubstr("every 8th"));
}

/// A layer whose weight had one scale for all rows. Rows of very different
/// sizes lose bits under one scale.
Operation WithOneScale() {
  Operation wrong = Layer(512, "bfloat16", "layers.1.wq");
  Floats& weight = wrong.floats["weight"];
  for (size_t row = 0; row < weight.extent[0]; ++row) {
    for (size_t col = 0; col < weight.extent[1]; ++col) {
      float& value = weight.values[row * weight.extent[1] + col];
      value = std::ldexp(value, -static_cast<int>(row / 14));
    }
  }
  Recipe planted = RecipeByName("fp8_rowwise");
  planted.fprop.right->cell.rows = 0;
  Multiply(planted, kPromoted, wrong);
  return wrong;
}

TEST(MistakesOnACard, AreNamedUnderItsAdder) {
  Operation right = Layer(512);
  Multiply(RecipeByName("fp8_rowwise"), kPromoted, right);

  const auto findings = CheckBeside(right, WithOneScale(), "fp8_rowwise");

  EXPECT_TRUE(findings[0].is_right());
  ASSERT_FALSE(findings[1].is_right());
  ASSERT_TRUE(findings[1].explanation);
  EXPECT_EQ(findings[1].explanation->name, "block_tensor.weight");
  EXPECT_EQ(findings[1].explanation->other, 0);
}

TEST(MistakesOnACard, AreNamedIfNoProductShowsIt) {
  const Finding finding = CheckLayer(WithOneScale(), "fp8_rowwise");

  ASSERT_FALSE(finding.is_right());
  ASSERT_TRUE(finding.explanation);
  EXPECT_EQ(finding.explanation->name, "block_tensor.weight");
  EXPECT_EQ(finding.sums, "Hopper FP8 tensor cores, promoted every 128 steps");
}

TEST(MistakesOnACard, BiasAfterRoundingIsNone) {
  Operation layer = Layer(512);
  Multiply(RecipeByName("fp8_rowwise"), kPromoted, layer);
  Floats& output = layer.floats["output"];
  layer.floats["bias"] = {.extent = {192},
                          .values = Normal(1, 192, "bias").values,
                          .type = "bfloat16"};
  for (size_t i = 0; i < output.values.size(); ++i) {
    output.values[i] = formats::RoundToBf16(
        output.values[i] + layer.floats["bias"].values[i % 192]);
  }

  const Finding finding = CheckLayer(layer, "fp8_rowwise");

  EXPECT_TRUE(finding.is_right());
  EXPECT_EQ(finding.sums, "Hopper FP8 tensor cores, promoted every 128 steps");
}

}  // namespace
}  // namespace isoloss::operations::arithmetic_test
