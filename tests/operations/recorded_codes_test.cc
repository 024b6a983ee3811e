// Codes and scales that a trainer recorded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "isoloss/formats/format.h"
#include "isoloss/formats/quantize.h"
#include "operations/checks.h"
#include "operations/samples.h"

namespace isoloss::operations::recorded_codes_test {
namespace {

using precision::RecipeByName;

/// With codes by a right computation.
Operation CodedLayer(const std::function<void(Operation&)>& change) {
  Operation operation = test_support::LinearInputs();
  change(operation);
  test_support::Compute(RecipeByName("mxfp8_rceil"), operation);
  test_support::AddCodes(RecipeByName("mxfp8_rceil"), operation);
  return operation;
}

TEST(OperandCodes, AScaleByteHasAPlaceOfItsOwn) {
  Operation operation = CodedLayer([](Operation&) {});
  Codes& scales = operation.codes["fprop_x_scales"];
  const size_t blocks = scales.extent[1];
  scales.values[3 * blocks + 1] += 2;

  const auto findings = Check({operation});
  const Finding& finding = Part(findings, "fprop_x scales");

  EXPECT_TRUE(Part(findings, "fprop_x codes").is_right());
  EXPECT_EQ(finding.comparison.other(), 1);
  EXPECT_EQ(finding.comparison.Row().worst_row, 3);
  EXPECT_EQ(finding.comparison.Row().worst_column, 1);
  EXPECT_THAT(finding.remark,
              ::testing::HasSubstr("are wrong, by +2: row 3, block 1. All "
                                   "codes are right."));
}

TEST(OperandCodes, ScalesThatWereStoredWrongAreNotToldOfTheProduct) {
  Operation operation = CodedLayer([](Operation&) {});
  for (uint8_t& byte : operation.codes["fprop_x_scales"].values) ++byte;

  const auto findings = Check({operation});

  EXPECT_TRUE(Part(findings, "fprop").is_right());
  ExpectNamed(findings, "fprop_x scales", "decode_scale_plus_1.fprop_x");
  EXPECT_EQ(Part(findings, "fprop_x scales").explanation->sentence,
            "the scales of fprop_x were stored with an exponent that is one "
            "too large");
}

/// Codes and scales of x under a description of another one.
Operation LayerOf(const formats::Quantization& made) {
  Operation operation = test_support::LinearInputs();
  const auto tensor = formats::Quantize(operation.Find("x")->Rows(), made);
  Codes& codes = operation.codes["fprop_x_codes"];
  Floats& scales = operation.floats["fprop_x_scales"];
  codes.extent = operation.Find("x")->extent;
  codes.type = made.element->name;
  scales.type = "float32";
  for (size_t r = 0; r < codes.extent[0]; ++r) {
    for (size_t c = 0; c < codes.extent[1]; ++c) {
      codes.values.push_back(static_cast<uint8_t>(tensor.codes(r, c)));
    }
    for (size_t b = 0; b < tensor.scales.cols(); ++b) {
      scales.values.push_back(tensor.scales(r, b) * tensor.tensor_scale);
    }
  }
  scales.extent = {codes.extent[0], tensor.scales.cols()};
  return operation;
}

std::vector<Finding> CheckAs(const std::string& quantization,
                             const Operation& operation) {
  precision::Recipe recipe = RecipeByName("mxfp8_rceil");
  recipe.fprop.left = formats::QuantizationByName(quantization);
  Executor executor(1);
  return CheckOperations({{.path = "f", .operations = {operation}}}, recipe, {},
                         executor);
}

TEST(OperandCodes, ScalesOfTwoLevelsAreWhatCodesAreMultipliedBy) {
  const formats::Quantization nvfp4 = formats::QuantizationByName("nvfp4");
  Operation operation = LayerOf(nvfp4);
  EXPECT_TRUE(Part(CheckAs("nvfp4", operation), "fprop_x scales").is_right());

  const float tensor_scale =
      formats::Quantize(operation.Find("x")->Rows(), nvfp4).tensor_scale;
  for (float& scale : operation.floats["fprop_x_scales"].values) {
    scale /= tensor_scale;
  }

  EXPECT_THAT(Part(CheckAs("nvfp4", operation), "fprop_x scales").remark,
              ::testing::HasSubstr("They lack the scale of the whole tensor"));
}

TEST(OperandCodes, ScalesOfAnotherRoundingAreNamed) {
  const std::string fp32 = "e4m3.te.fp32";
  const std::string power = "e4m3.te.pow2";
  ExpectNamed(CheckAs(fp32, LayerOf(formats::QuantizationByName(power))),
              "fprop_x scales", "scale_rounded_up.fprop_x");
  ExpectNamed(CheckAs(power, LayerOf(formats::QuantizationByName(fp32))),
              "fprop_x scales", "scale_unrounded.fprop_x");
}

TEST(OperandCodes, MaximaTimesANumberAreNamed) {
  const std::string fp32 = "e4m3.te.fp32";
  const formats::Quantization made = formats::QuantizationByName(fp32);
  // 0.37 is no usual constant: the scales themselves tell it.
  for (const float factor : {0.1f, 0.37f}) {
    Operation operation = LayerOf(made);
    auto& codes = operation.codes["fprop_x_codes"].values;
    for (float& scale : operation.floats["fprop_x_scales"].values) {
      scale *= factor;
    }
    const auto& x = operation.Find("x")->values;
    const auto& scales = operation.floats["fprop_x_scales"].values;
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<uint8_t>(
          formats::Encode(*made.element, x[i] * (1.0f / scales[i / 32]),
                          formats::Overflow::kSaturate));
    }
    const auto findings = CheckAs(fp32, operation);
    for (const char* part : {"fprop_x codes", "fprop_x scales"}) {
      ASSERT_TRUE(Part(findings, part).explanation) << part;
      EXPECT_EQ(Part(findings, part).explanation->name,
                "maxima_scaled.fprop_x");
    }
  }
}

TEST(OperandCodes, ScalesThatAreNotAsManyAsBlocksAreCalledThat) {
  Operation operation = CodedLayer([](Operation&) {});
  Codes& scales = operation.codes["wgrad_x_scales"];
  const size_t blocks = scales.values.size();
  scales.values.resize(3);
  scales.extent = {3};

  const auto findings = Check({operation});

  EXPECT_TRUE(Part(findings, "wgrad_x codes").is_right());
  EXPECT_EQ(Part(findings, "wgrad_x scales").remark,
            "There are 3 scale bytes, but " + std::to_string(blocks) +
                " blocks of 32 along the contraction.");
}

TEST(OperandCodes, ScalesOfExactPowersThatAreOneUpAreNamed) {
  Operation operation = CodedLayer([](Operation& layer) {
    for (float& value : layer.floats["x"].values) {
      int exponent = 0;  // no other maximum is 448 times a power of two
      if (std::fabs(std::frexp(value, &exponent)) == 0.875f) {
        value = std::ldexp(0.75f, exponent);
      }
    }
    layer.floats["x"].values[5] = 448.0f;
  });
  Codes& codes = operation.codes["fprop_x_codes"];
  const formats::Format& e4m3 = formats::FormatByName("e4m3");
  for (size_t i = 0; i < 32; ++i) {  // half of each: a scale twice as large
    codes.values[i] = static_cast<uint8_t>(
        formats::Encode(e4m3, operation.floats["x"].values[i] / 2,
                        formats::Overflow::kNonFinite));
  }
  ++operation.codes["fprop_x_scales"].values[0];

  const auto findings = Check({operation});

  ExpectNamed(findings, "fprop_x scales", "scale_exact_plus_1.fprop_x");
  ExpectNamed(findings, "fprop_x codes", "scale_exact_plus_1.fprop_x");
  EXPECT_THAT(Part(findings, "fprop_x scales").remark,
              ::testing::HasSubstr("codes differ, all in those blocks."));
}

TEST(OperandCodes, ValuesThatWereQuantisedTwiceAlongOneAxisAreNamed) {
  // 228 is a tie that goes to 224, half of the largest, so that the second
  // scale is half of the first: rounded up, those are in (224, 448].
  Operation operation = CodedLayer([](Operation& layer) {
    for (float& value : layer.floats["x"].values) value /= 64;
    layer.floats["x"].values[5] = 228.0f;
  });
  const Operation once = operation;
  Floats& x = operation.floats["x"];
  const Matrix<float> values = test_support::OperandValues(
      x.Rows(), false, RecipeByName("mxfp8_rceil").fprop.left);
  x.values.assign(values.data(), values.data() + values.size());
  operation.codes.clear();
  test_support::AddCodes(RecipeByName("mxfp8_rceil"), operation);
  Operation twice = once;
  for (const char* name : {"fprop_x_codes", "fprop_x_scales"}) {
    twice.codes[name] = operation.codes[name];
  }

  const auto findings = Check({twice});

  ExpectNamed(findings, "fprop_x scales",
              "quantized_twice_along_one_axis.fprop_x");
}

/// x by tiles of 128 and FP32 scales.
Operation LayerWithFp32Scales() {
  Operation operation = test_support::LinearInputs();
  const auto x = operation.Find("x")->Rows();
  const formats::QuantizedTensor stored =
      formats::Quantize(x, *RecipeByName("deepseek_v3_fp8").fprop.left);
  Codes& codes = operation.codes["fprop_x_codes"];
  codes.extent = {x.rows(), x.cols()};
  codes.type = "e4m3";
  for (size_t i = 0; i < stored.codes.size(); ++i) {
    codes.values.push_back(static_cast<uint8_t>(stored.codes.data()[i]));
  }
  Floats& scales = operation.floats["fprop_x_scales"] = test_support::Zeros(
      {stored.scales.rows(), stored.scales.cols()}, "float32");
  scales.values.assign(stored.scales.data(),
                       stored.scales.data() + stored.scales.size());
  return operation;
}

TEST(OperandCodes, ScalesMayBeFp32) {
  const auto scales_of = [](const Operation& operation) {
    return Part(Check({operation}, "deepseek_v3_fp8"), "fprop_x scales");
  };
  Operation operation = LayerWithFp32Scales();
  std::vector<float>& scales = operation.floats["fprop_x_scales"].values;
  EXPECT_EQ(scales_of(operation).comparison.Row().equal, test_support::kTokens);
  // One rounding of amax / 448 is any trainer's.
  scales[1] = std::nextafter(scales[1], 1.0f);
  EXPECT_TRUE(scales_of(operation).is_right());
  const float right = scales[3];
  scales[3] *= 2;
  EXPECT_EQ(scales_of(operation).comparison.other(), 1);
  EXPECT_THAT(scales_of(operation).remark,
              ::testing::StartsWith("1 of 64 scales are wrong, by a factor of "
                                    "2: row 3, block 0. All codes are right."));
  scales[3] = right;
  for (float& scale : scales) scale = 1 / scale;
  EXPECT_THAT(scales_of(operation).remark,
              ::testing::HasSubstr("They are the inverses: scales must be what "
                                   "codes are multiplied by."));
  scales.pop_back();
  EXPECT_EQ(scales_of(operation).remark,
            "There are 63 scales, but 64 blocks of the recipe.");
  operation.floats["fprop_x_scales"].type = "bfloat16";
  EXPECT_THROW(Check({operation}), Error);
}

}  // namespace
}  // namespace isoloss::operations::recorded_codes_test
