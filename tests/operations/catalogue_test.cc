// Every entry of the catalogue of products: what it makes of a right layer is
// explained by it, or by one that gives the same bits.
#include "isoloss/operations/catalogue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "isoloss/operations/check.h"
#include "isoloss/oracle/scalar_product.h"
#include "operations/samples.h"

namespace isoloss::operations::catalogue_test {
namespace {

using precision::GemmRole;
using precision::LinearPrecision;
using precision::Recipe;
using precision::RecipeByName;
using test_support::Random;

// Rows of five blocks, so that blocks of 128 are not whole rows.
constexpr size_t kTokens = 64;
constexpr size_t kIn = 160;
constexpr size_t kOut = 64;

/// `type` float32: values that BF16 does not hold. A third of x is so small
/// that elements of a block are subnormal.
Operation Inputs(const std::string& stream, const char* type = "bfloat16") {
  Operation operation = {.type = "linear", .module = "layers.0.wq"};
  const auto add = [&](const char* name, const std::vector<size_t>& extent) {
    Floats& floats = operation.floats[name] =
        Random(extent, (stream + name).c_str(), type);
    for (size_t i = 0; i < floats.values.size(); ++i) {
      if (i % 3 == 0) floats.values[i] *= 0x1p-9f;
      if (floats.type == "float32") floats.values[i] *= 1.0f + 0x1p-9f;
    }
  };
  add("x", {kTokens, kIn});
  add("weight", {kOut, kIn});
  add("grad_output", {kTokens, kOut});
  return operation;
}

struct Plan {
  GemmRole role;
  const char* part;
  const char* left;
  const char* right;
  const char* output;
  bool left_down;
  bool right_down;
};
constexpr Plan kPlans[] = {
    {GemmRole::kFprop, "fprop", "x", "weight", "output", false, false},
    {GemmRole::kDgrad, "dgrad", "grad_output", "weight", "grad_input", false,
     true},
    {GemmRole::kWgrad, "wgrad", "grad_output", "x", "grad_weight", true, true}};

Side SideOf(const Operation& operation, const Operation& before,
            const Plan& plan, bool left, const LinearPrecision& precision) {
  const auto& rule = precision.For(plan.role);
  const char* name = left ? plan.left : plan.right;
  Side side = {.values = operation.Find(name)->Rows(),
               .down = left ? plan.left_down : plan.right_down,
               .quantization = left ? rule.left : rule.right,
               .previous = before.Find(name)->Rows(),
               .previous_call = before.Find(name)->Rows()};
  if (left && rule.left_again) side.before = precision.dgrad.left;
  if (!left && rule.right_again) side.before = precision.fprop.left;
  return side;
}

/// [operand rows, depth] as the product reads it; nothing if a change has
/// nothing to change.
std::optional<Matrix<float>> Read(const Side& side) {
  if (!side.quantization) {
    return test_support::OperandValues(side.values, side.down, std::nullopt);
  }
  const auto tensor = Quantized(side);
  if (!tensor) return std::nullopt;
  return oracle::ScalarDequantize(
      *tensor, side.down ? side.values.rows() : side.values.cols());
}

/// `calls`: both are of one step.
std::vector<Finding> Check(const Operation& before, const Operation& operation,
                           const Recipe& recipe, bool calls = false,
                           const CheckOptions& options = {}) {
  Executor executor(1);
  std::vector<OperationFile> files = {{.path = "1", .operations = {before}}};
  if (calls) {
    files[0].operations.push_back(operation);
  } else {
    files.push_back({.path = "2", .step = 2, .operations = {operation}});
  }
  std::vector<Finding> findings =
      CheckOperations(files, recipe, options, executor);
  std::erase_if(findings,
                [](const Finding& f) { return f.file + f.operation == 0; });
  return findings;
}

/// Whether `part` is explained by `name`, if perhaps by another one as well.
/// Nothing if there is nothing to explain.
std::optional<bool> IsNamed(const std::vector<Finding>& findings,
                            const std::string& part, const std::string& name) {
  const auto found = std::ranges::find(findings, part, &Finding::part);
  if (found == findings.end() || found->is_right()) return std::nullopt;
  if (!found->explanation) return false;
  // Where FP32 sums and exact ones are cut off on either side of a number.
  const int64_t few = found->comparison.other() / 30;
  const Explanation& why = *found->explanation;
  return (why.name == name && why.other <= few) ||
         (why.runner_up == name && why.runner_up_other <= few &&
          (why.is_ambiguous || why.runner_up_other > 0));
}

/// For messages.
std::string Told(const std::vector<Finding>& findings,
                 const std::string& part) {
  const auto found = std::ranges::find(findings, part, &Finding::part);
  if (found == findings.end()) return "no finding";
  const Explanation why = found->explanation.value_or(Explanation{});
  return fmt::format("{} others, `{}` leaves {} and {} flips, `{}` leaves {}",
                     found->comparison.other(), why.name, why.other, why.flips,
                     why.runner_up, why.runner_up_other);
}

/// "nvfp4" in both operands, "nvfp4_2d" in squares, or a recipe's name.
Recipe RecipeOf(const std::string& name) {
  if (!name.starts_with("nvfp4")) return RecipeByName(name);
  Recipe recipe = RecipeByName("mxfp8_rceil");
  auto operand = formats::QuantizationByName("nvfp4");
  if (name == "nvfp4_2d") operand.cell = {16, 16};
  for (auto* product : {&recipe.fprop, &recipe.dgrad, &recipe.wgrad}) {
    product->left = product->right = operand;
  }
  return recipe;
}

/// Plants one mistake in each operand of each product; whether it was named.
bool IsNamedSomewhere(const SideMistake& mistake, const char* type,
                      const std::string& recipe_name) {
  const Recipe recipe = RecipeOf(recipe_name);
  Operation before = Inputs("before", type);
  test_support::Compute(recipe, before);
  for (const Plan& plan : kPlans) {
    for (const bool left : {true, false}) {
      Operation operation = Inputs("now", type);
      test_support::Compute(recipe, operation);
      Side sides[2] = {SideOf(operation, before, plan, true, recipe),
                       SideOf(operation, before, plan, false, recipe)};
      sides[0].partner = std::make_shared<const Side>(sides[1]);
      sides[1].partner = std::make_shared<const Side>(sides[0]);
      if (!mistake.alter(sides[left ? 0 : 1])) continue;
      const auto a = Read(sides[0]);
      const auto b = Read(sides[1]);
      if (!a || !b) continue;
      Floats& output = operation.floats[plan.output];
      test_support::Multiply(*a, *b, output.type == "bfloat16",
                             output.values.data());
      const std::string name =
          std::string(mistake.name) + "." + (left ? plan.left : plan.right);
      const bool of_call = mistake.name.ends_with("_call") ||
                           mistake.name.ends_with("_call_before");
      if (IsNamed(Check(before, operation, recipe, of_call), plan.part, name)
              .value_or(false)) {
        return true;
      }
    }
  }
  return false;
}

class OperandMistake : public ::testing::TestWithParam<size_t> {};

TEST_P(OperandMistake, IsNamedWhereItIsPlanted) {
  const SideMistake& mistake = SideMistakes()[GetParam()];
  // Products of modules that a recipe reaches do not show these:
  // linear_check_test.cc has tests of their own, and recorded_formats_test.cc.
  for (const char* part :
       {"quantized_twice_along_one_axis", "zero_block", "hadamard", "history_",
        "six", "scale_current", "scale_of_all_ranks"}) {
    if (mistake.name.find(part) != std::string_view::npos) return;
  }
  if (mistake.name == "quantized" || mistake.is_right) return;
  bool named = false;
  for (const char* recipe :
       {"mxfp8_rceil", "mxfp8_floor", "mxfp6_e3m2", "te_mxfp8_2d",
        "deepseek_v3_fp8", "nvfp4", "te_fp8_current", "bf16"}) {
    for (const char* type : {"bfloat16", "float32"}) {
      named = named || IsNamedSomewhere(mistake, type, recipe);
    }
    if (named) break;
  }
  EXPECT_TRUE(named) << mistake.name;
}

INSTANTIATE_TEST_SUITE_P(All, OperandMistake,
                         ::testing::Range(size_t{0}, SideMistakes().size()),
                         [](const auto& parameter) {
                           return std::string(
                               SideMistakes()[parameter.param].name);
                         });

TEST(OperandMistakes, OfScalesAreNamedWhereScalesAreFp32) {
  for (const std::string_view name :
       {"scale_stored_transposed", "transposed_scale", "scale_of_step_before",
        "scale_of_block_before", "decode_scale_plus_1", "decode_scale_minus_1",
        "scale_plus_1", "scale_of_largest", "scale_of_first_half",
        "scale_rounded", "clamp_240", "no_subnormals"}) {
    const auto mistake =
        std::ranges::find(SideMistakes(), name, &SideMistake::name);
    ASSERT_NE(mistake, SideMistakes().end()) << name;
    EXPECT_TRUE(IsNamedSomewhere(*mistake, "bfloat16", "deepseek_v3_fp8"))
        << name;
  }
}

Operation Grouped() {
  Operation operation = {.type = "grouped_linear", .module = "moe.experts.w1"};
  operation.floats["x"] = Random({kTokens, kIn}, "x");
  operation.floats["weight"] = Random({4, kOut, kIn}, "weight");
  // Scales are powers of two: only subnormal elements tell blocks apart. So
  // that these count, weights are as large as they are small.
  for (const auto& [name, sign] : {std::pair{"x", -1}, {"weight", 1}}) {
    std::vector<float>& values = operation.floats[name].values;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::ldexp(values[i], sign * static_cast<int>(i % kIn % 16));
    }
  }
  operation.floats["grad_output"] = Random({kTokens, kOut}, "dy");
  operation.integers["group_ends"] = {.extent = {4},
                                      .values = {20, 35, 49, 64}};
  test_support::Compute(RecipeByName("mxfp8_rceil"), operation);
  return operation;
}

struct Layer {
  Matrix<float> x;
  Matrix<float> w;
};
Layer Operands(const Operation& operation, const Recipe& recipe) {
  return {test_support::OperandValues(operation.Find("x")->Rows(), false,
                                      recipe.fprop.left),
          test_support::OperandValues(operation.Find("weight")->Rows(), false,
                                      recipe.fprop.right)};
}

float CutTo(float value, int bits) {
  const auto word = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>(word >> (23 - bits) << (23 - bits));
}

/// FP32 sums of `steps` products, each added to an outer one and rounded so.
template <typename Round>
void SumInSteps(const Layer& layer, size_t steps, const Round& round,
                Floats& output) {
  for (size_t i = 0; i < layer.x.rows(); ++i) {
    for (size_t j = 0; j < layer.w.rows(); ++j) {
      float outer = 0.0f;
      for (size_t begin = 0; begin < layer.x.cols(); begin += steps) {
        float sum = 0.0f;
        const size_t end = std::min(layer.x.cols(), begin + steps);
        for (size_t k = begin; k < end; ++k) {
          sum += layer.x(i, k) * layer.w(j, k);
        }
        outer = round(outer + sum);
      }
      output.values[i * layer.w.rows() + j] =
          output.type == "bfloat16" ? formats::RoundToBf16(outer) : outer;
    }
  }
}

/// What a tensor core of the name makes of it.
void SumByCore(const Operation& inputs, const Recipe& recipe, const char* name,
               size_t interval, Floats& output) {
  precision::GemmPrecision rule;
  rule.accumulation = {.accumulator = &kernels::AccumulatorByName(name),
                       .interval = interval};
  const oracle::ScalarOperand x = {.values = inputs.Find("x")->Rows(),
                                   .quantization = &*recipe.fprop.left};
  const oracle::ScalarOperand w = {.values = inputs.Find("weight")->Rows(),
                                   .quantization = &*recipe.fprop.right};
  const oracle::ScalarProduct product(x, w, rule);
  product.ForEach([&](size_t i, size_t j, const oracle::Estimate& sum) {
    output.values[i * kOut + j] =
        formats::RoundToBf16(static_cast<float>(sum.exact));
  });
}

/// Weights of experts in another order.
void Permute(const std::vector<size_t>& from, Operation& operation) {
  Operation other = operation;
  const size_t size = kOut * kIn;
  for (size_t e = 0; e < from.size(); ++e) {
    std::copy_n(operation.Find("weight")->values.begin() +
                    static_cast<ptrdiff_t>(from[e] * size),
                size,
                other.floats["weight"].values.begin() +
                    static_cast<ptrdiff_t>(e * size));
  }
  test_support::Compute(RecipeByName("mxfp8_rceil"), other);
  operation.floats["output"] = other.floats["output"];
}

class ProductMistakeTest : public ::testing::Test {
 protected:
  void Plant(const std::string& name, const Operation& operation,
             const Recipe& recipe = RecipeByName("mxfp8_rceil")) {
    CheckOptions options;
    options.demands_fp32 = name.starts_with("sums_");
    const auto findings = Check(operation, operation, recipe, false, options);
    const auto named = IsNamed(findings, "fprop", name);
    EXPECT_EQ(named, true) << name << ": " << Told(findings, "fprop");
    planted_.insert(name);
  }
  Operation Linear(const std::string& recipe = "mxfp8_rceil") {
    Operation operation = Inputs("now");
    test_support::Compute(RecipeByName(recipe), operation);
    return operation;
  }
  std::set<std::string> planted_;
};

TEST_F(ProductMistakeTest, EachIsNamed) {
  const Recipe& recipe = RecipeByName("mxfp8_rceil");
  for (const auto& [name, order] : {std::pair<const char*, std::vector<size_t>>{
                                        "experts_swapped", {0, 2, 1, 3}},
                                    {"experts_rotated", {1, 2, 3, 0}},
                                    {"experts_rotated_back", {3, 0, 1, 2}},
                                    {"experts_mixed", {2, 3, 0, 1}}}) {
    Operation grouped = Grouped();
    Permute(order, grouped);
    Plant(name, grouped);
  }
  Operation missing = Grouped();
  std::fill_n(missing.floats["output"].values.begin() + 20 * kOut, 15 * kOut,
              0.0f);
  Plant("expert_missing", missing);
  for (const auto& [name, core, interval] :
       {std::tuple{"sums_hopper_f13", "hopper_f13", 0},
        {"sums_hopper_f13_128", "hopper_f13", 128},
        {"sums_blackwell_f25", "blackwell_f25", 0}}) {
    Operation linear = Linear();
    SumByCore(linear, recipe, core, static_cast<size_t>(interval),
              linear.floats["output"]);
    // FP32 sums of E4M3 in blocks explain what 25 bits cut off.
    if (name == std::string("sums_blackwell_f25")) {
      EXPECT_FALSE(
          IsNamed(Check(linear, linear, recipe), "fprop", name).has_value());
      planted_.insert(name);
      continue;
    }
    Plant(name, linear);
  }
  for (const auto& [name, bits, steps] : {std::tuple{"sums_10_bits", 10, 32},
                                          {"sums_13_bits", 13, 32},
                                          {"sums_13_bits_128", 13, 128}}) {
    Operation linear = Linear();
    SumInSteps(
        Operands(linear, recipe), static_cast<size_t>(steps),
        [b = bits](float sum) { return CutTo(sum, b); },
        linear.floats["output"]);
    Plant(name, linear);
  }
  for (const size_t steps : {16, 32, 64, 128}) {
    Operation linear = Linear();
    SumInSteps(Operands(linear, recipe), steps, &formats::RoundToBf16,
               linear.floats["output"]);
    Plant("sums_bf16_" + std::to_string(steps), linear);
  }
  Operation cut = Linear();
  cut.floats["output"].type = "float32";  // to have the sums themselves
  const auto same = [](float sum) { return sum; };
  SumInSteps(Operands(cut, recipe), kIn, same, cut.floats["output"]);
  Operation rounded = cut;
  for (float& y : cut.floats["output"].values) y = CutTo(y, 7);
  cut.floats["output"].type = "bfloat16";
  Plant("output_truncated", cut);
  for (float& y : rounded.floats["output"].values) y = formats::RoundToBf16(y);
  Plant("output_bf16", rounded);

  Operation biased = Linear();
  biased.floats["bias"] = Random({kOut}, "bias", "bfloat16", 4.0);
  Plant("bias_missing", biased);
  Recipe promoted = RecipeByName("deepseek_v3_fp8");
  promoted.fprop.accumulation = {.accumulator =
                                     &kernels::AccumulatorByName("hopper_f13")};
  Plant("sums_fp32", Linear("deepseek_v3_fp8"), promoted);
  Operation fp16 = Linear();
  const formats::Format& half = formats::FormatByName("fp16");
  SumInSteps(
      Operands(fp16, recipe), kIn,
      [&half](float sum) {
        return formats::RoundToFormat(half, sum, formats::Overflow::kNonFinite);
      },
      fp16.floats["output"]);
  Plant("output_fp16", fp16);
  for (const std::string name : {"e4m3", "e5m2"}) {
    for (const bool is_scaled : {false, true}) {
      Operation coded = Linear();
      const formats::Format& format = formats::FormatByName(name);
      std::vector<float>& output = coded.floats["output"].values;
      const float amax = std::fabs(*std::ranges::max_element(
          output, {}, [](float y) { return std::fabs(y); }));
      const float scale = is_scaled ? amax / formats::MaxFinite(format) : 1.0f;
      for (float& y : output) {
        y = formats::RoundToBf16(
            formats::RoundToFormat(format, y / scale,
                                   formats::Overflow::kSaturate) *
            scale);
      }
      Plant("output_" + name + (is_scaled ? "_scaled" : ""), coded);
    }
  }

  // ABiasMayBeAddedToTheRoundedProduct: it is no mistake.
  planted_.insert("bias_after_rounding");
  for (const ProductMistake& mistake : ProductMistakes()) {
    EXPECT_TRUE(planted_.contains(std::string(mistake.name))) << mistake.name;
  }
}

// Of an accumulator that the catalogue does not have.
TEST_F(ProductMistakeTest, SumsThatLoseBitsInAnotherWayAreNamedAsSuch) {
  const Recipe& recipe = RecipeByName("mxfp8_rceil");
  Operation linear = Linear();
  SumInSteps(
      Operands(linear, recipe), 48, [](float sum) { return CutTo(sum, 11); },
      linear.floats["output"]);
  Plant("sums_cut_off", linear);
}

// As tensor cores of GPUs: products of 16 steps and the sum are aligned to the
// largest of them, and lose what lies below 13 bits.
TEST_F(ProductMistakeTest, AlignedSumsOfFewBitsAreNamedAsSuch) {
  Operation linear = Linear();
  const Layer layer = Operands(linear, RecipeByName("mxfp8_rceil"));
  for (size_t i = 0; i < layer.x.rows(); ++i) {
    for (size_t j = 0; j < layer.w.rows(); ++j) {
      double sum = 0;
      for (size_t begin = 0; begin < kIn; begin += 16) {
        std::vector<double> terms = {sum};
        for (size_t k = begin; k < begin + 16; ++k) {
          terms.push_back(static_cast<double>(layer.x(i, k) * layer.w(j, k)));
        }
        double largest = 0x1p-100;
        for (const double term : terms) {
          largest = std::max(largest, std::fabs(term));
        }
        const double unit = std::ldexp(1.0, std::ilogb(largest) - 13);
        sum = 0;
        for (const double term : terms) sum += std::trunc(term / unit) * unit;
      }
      linear.floats["output"].values[i * kOut + j] =
          formats::RoundToBf16(static_cast<float>(sum));
    }
  }
  Plant("sums_cut_off", linear);
}

TEST_F(ProductMistakeTest, ResultsThatWereMultipliedAreNamedAsSuch) {
  // 0.3 rounds the rounded result once more.
  for (const float factor : {0.5f, -1.0f, 4.0f, 1.0f / 256, 0.3f}) {
    Operation linear = Linear();
    for (float& y : linear.floats["output"].values) {
      y = formats::RoundToBf16(y * factor);
    }
    Plant("result_scaled", linear);
  }
}

TEST(GroupBlocks, ThatRunOnOverGroupsAreNamed) {
  const Recipe& recipe = RecipeByName("mxfp8_rceil");
  Operation operation = Grouped();
  const Operation before = operation;
  const auto joined = [&](const char* name) {
    const auto values = operation.Find(name)->Rows();
    return test_support::OperandValues(values, true, recipe.wgrad.left);
  };
  const Matrix<float> x = joined("x");
  const Matrix<float> dy = joined("grad_output");
  const auto& ends = operation.FindIntegers("group_ends")->values;
  size_t begin = 0;
  for (size_t e = 0; e < ends.size(); ++e) {
    const auto end = static_cast<size_t>(ends[e]);
    Matrix<float> rows(end - begin, kIn);
    for (size_t r = begin; r < end; ++r) {
      for (size_t k = 0; k < kIn; ++k) rows(r - begin, k) = x(k, r);
    }
    const auto w = operation.Find("weight")->Rows().Rows(e * kOut, kOut);
    test_support::Multiply(
        rows, test_support::OperandValues(w, false, recipe.fprop.right), true,
        operation.floats["output"].values.data() + begin * kOut);
    for (size_t n = 0; n < kOut; ++n) {
      for (size_t k = 0; k < kIn; ++k) {
        float sum = 0.0f;
        for (size_t r = begin; r < end; ++r) sum += dy(n, r) * x(k, r);
        operation.floats["grad_weight"].values[(e * kOut + n) * kIn + k] = sum;
      }
    }
    begin = end;
  }

  const auto findings = Check(before, operation, recipe);

  EXPECT_EQ(IsNamed(findings, "fprop", "other_axis_across_groups.x"), true);
  EXPECT_EQ(IsNamed(findings, "wgrad", "blocks_across_groups.both"), true);
}

TEST(GroupBlocks, AreNamedByTheirCodesToo) {
  const Recipe& recipe = RecipeByName("mxfp8_rceil");
  Operation operation = Grouped();
  Codes& codes = operation.codes["wgrad_x_codes"];
  Codes& scales = operation.codes["wgrad_x_scales"];
  test_support::AppendCodes(operation.Find("x")->Rows(), true,
                            *recipe.wgrad.right, codes, scales);
  codes.extent = {kTokens, kIn};
  codes.type = "e4m3";
  scales.extent = {kTokens / 32, kIn};

  EXPECT_EQ(IsNamed(Check(operation, operation, recipe), "wgrad_x codes",
                    "blocks_across_groups.wgrad_x"),
            true);
}

}  // namespace
}  // namespace isoloss::operations::catalogue_test
