// Operands whose quantisation depends on more than their values, or whose codes
// and scales have two levels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/formats/format.h"
#include "isoloss/operations/catalogue.h"
#include "isoloss/operations/roundings.h"
#include "operations/checks.h"
#include "operations/samples.h"

namespace isoloss::operations::recorded_formats_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNvfp4 = "nvfp4";
constexpr const char* kRotated = "e2m1.te.e4m3.1x16.two_level.hadamard16_te";
constexpr const char* kRandom = "e2m1.te.e4m3.1x16.two_level.stochastic16";
constexpr const char* kCurrent = "e4m3.te.fp32.0x0";
constexpr const char* kDelayed = "e4m3.te.fp32.0x0.delayed.history3";

Side SideOf(const Operation& operation, const char* quantization) {
  return {.values = operation.Find("x")->Rows(),
          .quantization = formats::QuantizationByName(quantization)};
}

/// Writes codes and scales of x as a file has them.
void Store(const Side& side, Operation& operation) {
  const oracle::ScalarTensor tensor = *Quantized(side);
  const formats::Quantization& rule = *side.quantization;
  const auto code = [](const char* name, float value) {
    return static_cast<uint8_t>(formats::Encode(
        formats::FormatByName(name), value, formats::Overflow::kSaturate));
  };
  Codes& codes = operation.codes["fprop_x_codes"];
  codes = {.extent = operation.Find("x")->extent,
           .values = {},
           .type = std::string(rule.element->name)};
  for (size_t i = 0; i < tensor.codes.size(); ++i) {
    codes.values.push_back(
        code(rule.element->name.data(), tensor.codes.data()[i]));
  }
  Codes bytes = {
      .extent = {tensor.scales.size()}, .values = {}, .type = "e4m3"};
  Floats scales = {.extent = bytes.extent, .values = {}, .type = "float32"};
  for (const oracle::ScalarScale& scale : tensor.scales) {
    bytes.values.push_back(code("e4m3", scale.decode));
    scales.values.push_back(scale.decode);
  }
  if (!rule.scales_tensor()) {
    operation.floats["fprop_x_scales"] = scales;
    return;
  }
  operation.codes["fprop_x_scales"] = bytes;
  operation.floats["fprop_x_tensor_scale"] = {
      .extent = {1}, .values = {tensor.tensor_scale}, .type = "float32"};
}

std::vector<Finding> CheckAs(const char* quantization,
                             const Operation& operation, int64_t step = 1) {
  precision::Recipe recipe = precision::RecipeByName("mxfp8_rceil");
  recipe.fprop.left = formats::QuantizationByName(quantization);
  Executor executor(1);
  const std::vector<OperationFile> files = {
      {.path = "f", .step = step, .operations = {operation}}};
  CheckExtents(files[0]);
  return CheckOperations(files, recipe, {}, executor);
}

void ExpectAllRight(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    EXPECT_TRUE(finding.is_right()) << finding.part;
    EXPECT_EQ(finding.open, "") << finding.part;
  }
}

/// Stores codes and scales that were made as `wrong` has it.
void ExpectPlantedIsNamed(const char* name, const char* quantization,
                          const Side& wrong, Operation operation) {
  Store(wrong, operation);
  ExpectNamed(CheckAs(quantization, operation), "fprop_x scales",
              std::string(name) + ".fprop_x");
}

TEST(Nvfp4, CodesMayBeTwoInAByte) {
  Operation operation = test_support::LinearInputs();
  Store(SideOf(operation, kNvfp4), operation);
  ExpectAllRight(CheckAs(kNvfp4, operation));

  Operation packed = operation;
  Codes& codes = packed.codes["fprop_x_codes"];
  std::vector<uint8_t> pairs;
  for (size_t i = 0; i < codes.values.size(); i += 2) {
    pairs.push_back(
        static_cast<uint8_t>(codes.values[i] | codes.values[i + 1] << 4));
  }
  codes = {.extent = {codes.extent[0], codes.extent[1] / 2},
           .values = pairs,
           .type = "e2m1x2"};
  SpreadCodes(packed);

  EXPECT_EQ(packed.codes["fprop_x_codes"].values,
            operation.codes["fprop_x_codes"].values);
  EXPECT_EQ(packed.codes["fprop_x_codes"].extent,
            operation.codes["fprop_x_codes"].extent);
  std::vector<uint8_t>& values = packed.codes["fprop_x_codes"].values;
  for (size_t i = 0; i < values.size(); i += 2) {
    std::swap(values[i], values[i + 1]);
  }
  ExpectNamed(CheckAs(kNvfp4, packed), "fprop_x codes",
              "halves_swapped.fprop_x");
}

TEST(Nvfp4, BothLevelsOfScalesAreJudged) {
  Operation operation = test_support::LinearInputs();
  const Side side = SideOf(operation, kNvfp4);
  Store(side, operation);
  Operation bare = operation;
  bare.floats.erase("fprop_x_tensor_scale");
  EXPECT_THAT(Part(CheckAs(kNvfp4, bare), "fprop_x").open,
              HasSubstr("fprop_x_tensor_scale is missing"));

  operation.floats["fprop_x_tensor_scale"].values = {1.0f};
  const auto findings = CheckAs(kNvfp4, operation);
  ExpectNamed(findings, "fprop_x tensor scale", "tensor_scale_missing.fprop_x");
  EXPECT_TRUE(Part(findings, "fprop_x scales").is_right());
  operation.codes["fprop_x_scales"].type = "e5m2";
  EXPECT_THROW(CheckAs(kNvfp4, operation), Error);
}

TEST(Nvfp4, ScalesOfZerosAreNamed) {
  Operation operation = test_support::LinearInputs();
  std::fill_n(operation.floats["x"].values.begin(), 16, 0.0f);
  Store(SideOf(operation, kNvfp4), operation);
  EXPECT_EQ(operation.codes["fprop_x_scales"].values[0], 0);
  operation.codes["fprop_x_scales"].values[0] = 7 << 3;  // 1 in E4M3
  ExpectNamed(CheckAs(kNvfp4, operation), "fprop_x scales",
              "zero_block_scale_1.fprop_x");
}

TEST(Nvfp4, MistakesOfTransformsAreNamed) {
  Operation operation = test_support::LinearInputs();
  Side side = SideOf(operation, kRotated);
  for (const bool rounds : {true, false}) {
    side.rounds_rotation = rounds;
    Store(side, operation);
    ExpectAllRight(CheckAs(kRotated, operation));
  }
  side.rounds_rotation = true;
  side.quantization->transform = formats::Transform::kNone;
  ExpectPlantedIsNamed("hadamard_missing", kRotated, side, operation);
  side.quantization->transform = formats::Transform::kHadamard16;
  ExpectPlantedIsNamed("hadamard_without_signs", kRotated, side, operation);
}

TEST(FourOverSix, ABlockEndsAtFourIfThatIsNearer) {
  const float x[] = {10, 20, 30, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  Side side = {.values = {x, 1, 16},
               .quantization = formats::QuantizationByName(kNvfp4),
               .four_over_six = oracle::FourOverSix{.largest_scale = 256.0f}};
  const oracle::ScalarTensor four = *Quantized(side);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(four.codes(0, i), static_cast<float>(i + 1));
  }
  EXPECT_EQ(four.scales[0].decode, 384.0f);
  // No scale is larger than 448.
  side.four_over_six = oracle::FourOverSix{};
  EXPECT_EQ(Quantized(side)->codes(0, 3), 6.0f);
}

TEST(FourOverSix, IsDeclaredByTheFileAndItsMistakesAreNamed) {
  Operation operation = test_support::LinearInputs();
  Side side = SideOf(operation, kNvfp4);
  const Side six = side;
  side.four_over_six = oracle::FourOverSix{.largest_scale = 256.0f};
  const Side of_256 = side;
  ExpectPlantedIsNamed("four_over_six_256", kNvfp4, of_256, operation);
  side.four_over_six = oracle::FourOverSix{.by_squares = true};
  const Side by_squares = side;
  side.four_over_six = oracle::FourOverSix{};
  ExpectPlantedIsNamed("four_over_six", kNvfp4, side, operation);
  operation.texts["fprop_x_four_over_six"] = "mae";
  Store(side, operation);
  ExpectAllRight(CheckAs(kNvfp4, operation));
  ExpectPlantedIsNamed("six_only", kNvfp4, six, operation);
  ExpectPlantedIsNamed("four_over_six_mse", kNvfp4, by_squares, operation);
  ExpectPlantedIsNamed("four_over_six_largest", kNvfp4, of_256, operation);
  operation.texts["fprop_x_four_over_six"] = "mse";
  ExpectPlantedIsNamed("four_over_six_mae", kNvfp4, side, operation);
  operation.texts["fprop_x_four_over_six"] = "all";
  EXPECT_THROW(CheckAs(kNvfp4, operation), Error);
}

TEST(DelayedScaling, FollowsTheHistoryAndItsMistakesAreNamed) {
  Operation operation = test_support::LinearInputs();
  Side side = SideOf(operation, kDelayed);
  const auto set_history = [&](const std::vector<float>& history) {
    side.amax_history = history;
    side.SetHistory(7.0f);
    operation.floats["fprop_x_amax_history"] = {
        .extent = {4}, .values = {99.0f}, .type = "float32"};
    for (const float amax : history) {
      operation.floats["fprop_x_amax_history"].values.push_back(amax);
    }
  };
  set_history({3.0f, 7.0f, 4.5f});
  Store(side, operation);
  ExpectAllRight(CheckAs(kDelayed, operation));
  const std::vector<float>& x = operation.Find("x")->values;
  const auto [least, most] = std::ranges::minmax(x);
  for (const auto& [name, amax] :
       {std::pair("scale_current", std::max(-least, most)),
        std::pair("history_latest", 4.5f), std::pair("history_lost", 0.0f)}) {
    side.SetHistory(amax);
    ExpectPlantedIsNamed(name, kDelayed, side, operation);
  }
  set_history({3.0f, 4.5f, 7.0f});
  side.SetHistory(4.5f);
  ExpectPlantedIsNamed("history_without_latest", kDelayed, side, operation);
  operation.floats["fprop_x_amax_history"].values[0] = -1.0f;
  EXPECT_THROW(CheckAs(kDelayed, operation), Error);
  operation.floats["fprop_x_amax_history"].values[0] = 1.0f;
  operation.texts["amax_algorithm"] = "mean";
  EXPECT_THROW(CheckAs(kDelayed, operation), Error);
}

TEST(DelayedScaling, WithoutAHistoryScalesStayOpen) {
  Operation operation = test_support::LinearInputs();
  Side side = SideOf(operation, kDelayed);
  side.amax_history = {7.0f};
  side.SetHistory(7.0f);
  Store(side, operation);
  const auto findings = CheckAs(kDelayed, operation, /*step=*/5);
  EXPECT_THAT(Part(findings, "fprop_x").open, HasSubstr("amax_history"));
  EXPECT_TRUE(Part(findings, "fprop_x codes").is_right());
  // One that is empty after the first step, or too short, is none.
  for (const std::vector<float>& history :
       {std::vector<float>{}, std::vector<float>{7.0f}}) {
    operation.floats["fprop_x_amax_history"] = {
        .extent = {history.size()}, .values = history, .type = "float32"};
    EXPECT_NE(Part(CheckAs(kDelayed, operation, 5), "fprop_x").open, "");
    EXPECT_EQ(CheckAs(kDelayed, operation, 1)[0].open, "");
  }
}

/// Appends codes and scales of one group as a file has them.
void Append(const Side& side, const std::string& name, Operation& operation) {
  const oracle::ScalarTensor tensor = *Quantized(side);
  Codes& codes = operation.codes[name + "_codes"];
  codes.type = side.quantization->element->name;
  for (size_t r = 0; r < side.values.rows(); ++r) {
    for (size_t c = 0; c < side.values.cols(); ++c) {
      codes.values.push_back(static_cast<uint8_t>(
          formats::Encode(*side.quantization->element,
                          side.down ? tensor.codes(c, r) : tensor.codes(r, c),
                          formats::Overflow::kSaturate)));
    }
  }
  Floats& scales = operation.floats[name + "_scales"];
  scales.type = "float32";
  for (const oracle::ScalarScale& scale : tensor.scales) {
    scales.values.push_back(scale.decode);
  }
  codes.extent = {codes.values.size() / side.values.cols(), side.values.cols()};
  scales.extent = {scales.values.size()};
}

TEST(GroupedScales, ABlockThatSpansAGroupIsItsOwn) {
  const auto rule = precision::RecipeByName("fp8_rowwise").wgrad.left;
  // The second group is empty. A file may have scales of it, or none.
  for (const bool of_empty : {false, true}) {
    Operation operation = test_support::GroupedInputs();
    const MatrixView<const float> dy = operation.Find("grad_output")->Rows();
    size_t begin = 0;
    for (const int64_t end : operation.FindIntegers("group_ends")->values) {
      const size_t rows = static_cast<size_t>(end) - begin;
      Append(
          {.values = dy.Rows(begin, rows), .down = true, .quantization = rule},
          "wgrad_dy", operation);
      Floats& scales = operation.floats["wgrad_dy_scales"];
      if (rows == 0 && of_empty) {
        scales.values.resize(scales.values.size() + dy.cols(), 99.0f);
        scales.extent = {scales.values.size()};
      }
      begin += rows;
    }
    ExpectAllRight(Check({operation}, "fp8_rowwise"));
    operation.floats["wgrad_dy_scales"].values.back() *= 2.0f;
    EXPECT_EQ(Part(Check({operation}, "fp8_rowwise"), "wgrad_dy scales")
                  .comparison.other(),
              1);
  }
}

TEST(ScalesOfRanks, ThoseOfAllRanksAreNamedOrDeclared) {
  Operation operation = test_support::LinearInputs();
  Operation other = operation;
  other.floats["x"].values[0] = 50.0f;
  Side side = SideOf(operation, kCurrent);
  side.shared_amax = 50.0f;
  Append(side, "fprop_x", operation);
  const auto check = [&](bool has_other) {
    std::vector<OperationFile> files = {
        {.path = "f", .ranks = 2, .operations = {operation}}};
    if (has_other) {
      files.push_back(
          {.path = "g", .rank = 1, .ranks = 2, .operations = {other}});
    }
    Executor executor(1);
    return CheckOperations(files, precision::RecipeByName("te_fp8_current"), {},
                           executor);
  };
  ExpectNamed(check(true), "fprop_x scales", "scale_of_all_ranks.fprop_x");
  operation.texts["amax_ranks"] = "all";
  ExpectAllRight(check(true));
  EXPECT_THAT(Part(check(false), "fprop_x").open,
              HasSubstr("files are missing"));
  operation.texts["amax_ranks"] = "some";
  EXPECT_THROW(check(true), Error);
}

TEST(GroupedScales, OneScaleMayBeThatOfAllGroups) {
  Operation operation = test_support::GroupedInputs();
  Append({.values = operation.Find("x")->Rows(),
          .quantization = precision::RecipeByName("te_fp8_current").fprop.left},
         "fprop_x", operation);
  ExpectAllRight(Check({operation}, "te_fp8_current"));
  operation.floats["fprop_x_scales"].values[0] *= 2.0f;
  EXPECT_EQ(Part(Check({operation}, "te_fp8_current"), "fprop_x scales")
                .comparison.other(),
            1);
  operation.texts["fprop_x_four_over_six"] = "mae";
  EXPECT_THAT(Part(Check({operation}, "te_fp8_current"), "fprop_x").open,
              HasSubstr("no NVFP4"));
  operation.texts.clear();
  operation.floats["fprop_x_scales"] = {
      .extent = {0}, .values = {}, .type = "float32"};
  EXPECT_FALSE(
      Part(Check({operation}, "te_fp8_current"), "fprop_x scales").is_right());
}

TEST(ScalesOfShares, AreThoseOfTheRankThatWroteTheFile) {
  for (const bool along_rows : {false, true}) {
    Operation operation = test_support::LinearInputs();
    Floats& x = operation.floats["x"];
    x.values.front() = 8.0f;  // in the first share
    // In the second one along this axis alone.
    x.values[along_rows ? x.values.size() - x.extent[1] : x.extent[1] - 1] =
        3.0f;
    Side side = {
        .values = operation.Find("x")->Rows(),
        .quantization = precision::RecipeByName("te_fp8_current").fprop.left};
    ASSERT_TRUE(FollowShare({.parts = 2, .place = 1}, along_rows, side));
    Append(side, "fprop_x", operation);
    Executor executor(1);
    const auto findings = CheckOperations(
        {{.path = "f",
          .ranks = 4,
          .mesh = "dp=2 tp=2",
          .coordinate = "0 1",
          .operations = {operation}}},
        precision::RecipeByName("te_fp8_current"), {}, executor);
    ExpectNamed(findings, "fprop_x scales",
                along_rows ? "scale_of_part_2_of_2_of_rows.fprop_x"
                           : "scale_of_part_2_of_2.fprop_x");
  }
}

TEST(GroupedScales, OneScaleOfAllGroupsIsNamedInProducts) {
  const precision::Recipe& recipe = precision::RecipeByName("te_fp8_current");
  Operation operation = test_support::GroupedInputs();
  const MatrixView<const float> weights = operation.Find("weight")->Rows();
  const Matrix<float> x = test_support::OperandValues(
      operation.Find("x")->Rows(), false, recipe.fprop.left);
  const auto& ends = operation.FindIntegers("group_ends")->values;
  const size_t out = weights.rows() / ends.size();
  Floats& output = operation.floats["output"];
  output = test_support::Zeros({x.rows(), out});
  size_t begin = 0;
  for (size_t e = 0; e < ends.size(); ++e) {
    const auto end = static_cast<size_t>(ends[e]);
    Matrix<float> rows(end - begin, x.cols());
    std::copy_n(x.Row(begin), rows.size(), rows.data());
    test_support::Multiply(
        rows,
        test_support::OperandValues(weights.Rows(e * out, out), false,
                                    recipe.fprop.right),
        true, output.values.data() + begin * out);
    begin = end;
  }
  ExpectNamed(Check({operation}, "te_fp8_current"), "fprop",
              "blocks_across_groups.x");
}

/// Rounds x by random numbers, of which random(row, column) is one.
void StoreRandom(const std::function<double(size_t, size_t)>& random,
                 Operation& operation) {
  Side side = SideOf(operation, kNvfp4);
  side.quantization->rounding = formats::RoundingMode::kTowardZero;
  Store(side, operation);
  const oracle::ScalarTensor tensor = *Quantized(side);
  const formats::Format& e2m1 = formats::FormatByName("e2m1");
  Codes& codes = operation.codes["fprop_x_codes"];
  for (size_t i = 0; i < codes.values.size(); ++i) {
    const size_t r = i / codes.extent[1];
    const size_t c = i % codes.extent[1];
    const uint8_t magnitude = codes.values[i] & 7;
    const float scaled =
        std::fabs(tensor.elements(r, c) * tensor.ScaleAt(r, c).encode);
    const float low = formats::Decode(e2m1, magnitude);
    if (magnitude == 7 || scaled == low) continue;
    const float gap = formats::Decode(e2m1, magnitude + 1u) - low;
    if (random(r, c) < static_cast<double>((scaled - low) / gap)) {
      codes.values[i] = static_cast<uint8_t>(
          (std::signbit(tensor.elements(r, c)) ? 8 : 0) + magnitude + 1);
    }
  }
}

double Unit(size_t row, size_t column) {
  const CounterRng rng(3, StreamId("roundings"));
  return static_cast<double>(rng.Bits(row << 16 | column) >> 40) * 0x1p-24;
}

TEST(RandomRounding, FitsTheRemaindersOrIsNamed) {
  Operation operation = test_support::LinearInputs();
  StoreRandom(Unit, operation);
  ExpectAllRight(CheckAs(kRandom, operation));
  using Random = double (*)(size_t, size_t);
  const std::pair<const char*, Random> mistakes[] = {
      {"rounded_away", [](size_t, size_t) { return -1.0; }},
      {"rounded_toward_zero", [](size_t, size_t) { return 2.0; }},
      {"rounded_to_nearest", [](size_t, size_t) { return 0.5; }},
      {"one_random_number", [](size_t, size_t) { return 0.3; }},
      {"random_numbers_repeat", [](size_t, size_t c) { return Unit(0, c); }},
      {"random_numbers_repeat",
       [](size_t r, size_t c) { return Unit(r, c / 2); }}};
  for (const auto& [name, random] : mistakes) {
    StoreRandom(random, operation);
    ExpectNamed(CheckAs(kRandom, operation), "fprop_x roundings",
                std::string(name) + ".fprop_x");
  }
  StoreRandom([](size_t r, size_t c) { return 0.8 * Unit(r, c); }, operation);
  const auto biased = CheckAs(kRandom, operation);
  EXPECT_THAT(Part(biased, "fprop_x roundings").remark,
              HasSubstr("elements were rounded up, but their remainders ask"));
}

TEST(RandomRounding, NeedsCodesToJudgeAProduct) {
  Operation operation = test_support::LinearInputs();
  test_support::Compute(precision::RecipeByName("mxfp8_rceil"), operation);
  EXPECT_THAT(Part(CheckAs(kRandom, operation), "fprop").open,
              HasSubstr("x is rounded at random"));
  StoreRandom(Unit, operation);
  Codes& codes = operation.codes["fprop_x_codes"];
  codes.values[0] ^= 4;
  const auto findings = CheckAs(kRandom, operation);
  EXPECT_EQ(Part(findings, "fprop_x codes").comparison.other(), 1);
  EXPECT_FALSE(Part(findings, "fprop").is_right());
}

}  // namespace
}  // namespace isoloss::operations::recorded_formats_test
