// Scales of each rule and scaling, worked out by hand.
#include "isoloss/formats/scaling.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/formats/e8m0.h"
#include "quantize_cases.h"

namespace isoloss::formats::scaling_test {
namespace {

using ::testing::ElementsAre;

constexpr float kFloatMax = std::numeric_limits<float>::max();

// ---- Scale rules ------------------------------------------------------------

TEST(ScaleRules, TeMultipliesByTheQuotientAndStoresItsReciprocal) {
  // 448 / 4 = 112: 112 is 1.75 * 2^6, 224 doubles it, 336 is a tie of 320 and
  // 352, 448 is the largest value.
  const std::vector<float> row = {1, -2, 3, 4};

  const QuantizedTensor q =
      QuantizeRow(row, Scaled("e4m3", ScaleFormat::kFp32, ScaleRule::kTe));

  EXPECT_THAT(Flat(q.codes), ElementsAre(0x6E, 0xF6, 0x7A, 0x7E));
  EXPECT_THAT(Flat(q.scales), ElementsAre(1.0f / 112));
  EXPECT_EQ(q.scale_bytes.size(), 0u);
  EXPECT_EQ(q.tensor_scale, 1.0f);
}

TEST(ScaleRules, PowersOfTwoOfTeAndTorchaoRoundTheFactorDown) {
  // 448 / 3 = 149.3: 128; 3 * 128 = 1.5 * 2^8.
  for (const ScaleRule rule : {ScaleRule::kTe, ScaleRule::kTorchao}) {
    const QuantizedTensor q =
        QuantizeRow({3, -1}, Scaled("e4m3", ScaleFormat::kPow2, rule));

    EXPECT_THAT(Flat(q.codes), ElementsAre(0x7C, 0xF0));
    EXPECT_THAT(Flat(q.scales), ElementsAre(0x1p-7f));
  }
}

TEST(ScaleRules, DeepgemmStoresTheQuotient) {
  // 4 / 448 = 0.0089: 2^-6 is the power of two above.
  const QuantizedTensor fp32 = QuantizeRow(
      {4, 0}, Scaled("e4m3", ScaleFormat::kFp32, ScaleRule::kDeepgemm));
  const QuantizedTensor pow2 = QuantizeRow(
      {4, 0}, Scaled("e4m3", ScaleFormat::kPow2, ScaleRule::kDeepgemm));

  EXPECT_THAT(Flat(fp32.scales), ElementsAre(4.0f / 448));
  EXPECT_THAT(Flat(fp32.codes), ElementsAre(0x7E, 0));
  EXPECT_THAT(Flat(pow2.scales), ElementsAre(0x1p-6f));
  EXPECT_THAT(Flat(pow2.codes), ElementsAre(0x78, 0));
}

TEST(ScaleRules, GuardsOfZerosAndTinyMagnitudesDiffer) {
  const auto scale_of = [](float amax, ScaleFormat format, ScaleRule rule) {
    return QuantizeRow({amax}, Scaled("e4m3", format, rule)).scales(0, 0);
  };

  EXPECT_EQ(scale_of(0, ScaleFormat::kFp32, ScaleRule::kTe), 1.0f);
  EXPECT_EQ(scale_of(0, ScaleFormat::kPow2, ScaleRule::kTe), 1.0f);
  EXPECT_EQ(scale_of(0, ScaleFormat::kFp32, ScaleRule::kDeepgemm), 1e-4f / 448);
  EXPECT_EQ(scale_of(1e-5f, ScaleFormat::kFp32, ScaleRule::kDeepgemm),
            1e-4f / 448);
  // 1e-4 / 448 = 2.2e-7 lies between 2^-23 and 2^-22.
  EXPECT_EQ(scale_of(0, ScaleFormat::kPow2, ScaleRule::kDeepgemm), 0x1p-22f);
  EXPECT_EQ(scale_of(0, ScaleFormat::kFp32, ScaleRule::kTorchao),
            1 / static_cast<float>(448 / 1e-12));
  // 448 / 2^-149 is beyond FP32.
  EXPECT_EQ(scale_of(0x1p-149f, ScaleFormat::kFp32, ScaleRule::kTe),
            1 / kFloatMax);
  EXPECT_EQ(scale_of(0x1p-149f, ScaleFormat::kPow2, ScaleRule::kTe), 0x1p-127f);
}

TEST(ScaleRules, FiniteTensorsStayFinite) {
  // 127 / 64 / FLT_MAX is a subnormal, whose power of two has no reciprocal.
  for (const char* element : {"e4m3", "e5m2", "e2m1", "int8"}) {
    for (const ScaleFormat format : {ScaleFormat::kFp32, ScaleFormat::kPow2}) {
      for (const ScaleRule rule :
           {ScaleRule::kTe, ScaleRule::kDeepgemm, ScaleRule::kTorchao}) {
        SCOPED_TRACE(fmt::format("{} {} {}", element, ScaleFormatName(format),
                                 ScaleRuleName(rule)));
        const Quantization quantization = Scaled(element, format, rule);
        for (const float amax : {0x1p-149f, 1e-30f, 1.0f, 0x1p126f, 0x1p127f}) {
          const Matrix<float> values = Dequantize(
              QuantizeRow({amax, -amax / 2}, quantization), quantization);
          ASSERT_TRUE(std::isfinite(values(0, 0))) << amax;
          ASSERT_TRUE(std::isfinite(values(0, 1))) << amax;
          // A factor that is wrong by two leaves the largest element wrong by
          // more than the coarsest step, 1/4 of E2M1 and E5M2.
          if (amax < 1e-20f) continue;
          EXPECT_NEAR(values(0, 0), amax, amax / 4);
        }
      }
    }
  }
}

TEST(ScaleRules, E4m3ScalesOfBlocksAlone) {
  // 3 / 6 = 0.5, byte 0x30; a block of zeros has byte 0 by TransformerEngine's
  // rule and the least normal one by torchao's.
  const std::vector<float> row = {3, -1.5f, 0, 0};
  const auto quantized = [&](ScaleRule rule) {
    return QuantizeRow(row, Scaled("e2m1", ScaleFormat::kE4m3, rule, {1, 2}));
  };

  const QuantizedTensor te = quantized(ScaleRule::kTe);
  const QuantizedTensor torchao = quantized(ScaleRule::kTorchao);

  EXPECT_THAT(Flat(te.scale_bytes), ElementsAre(0x30, 0x00));
  EXPECT_THAT(Flat(te.scales), ElementsAre(0.5f, 0.0f));
  EXPECT_THAT(Flat(te.codes), ElementsAre(0x7, 0xD, 0, 0));
  EXPECT_THAT(Flat(torchao.scale_bytes), ElementsAre(0x30, 0x08));
  EXPECT_THAT(Flat(torchao.codes), ElementsAre(0x7, 0xD, 0, 0));
}

TEST(ScaleRules, OfInt8AreExactCeilings) {
  // RCEIL: the least scale under which amax is at most 127/64; CEIL: the least
  // power of two that is not below amax; FLOOR: the exponent field.
  const Format& int8 = FormatByName("int8");
  const double largest = double{MaxFinite(int8)};
  const auto least_scale = [](double amax, double most) {
    int byte = 0;
    while (byte < kMaxE8m0 && std::ldexp(most, byte - 127) < amax) ++byte;
    return byte;
  };
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (const uint32_t mantissa :
         {0u, 1u, 0x3FFFFFu, 0x400000u, 0x400001u, 0x7DFFFFu, 0x7E0000u,
          0x7E0001u, 0x7EFFFFu, 0x7F0000u, 0x7F0001u, 0x7FFFFFu}) {
      const uint32_t bits = exponent << 23 | mantissa;
      const double amax = double{std::bit_cast<float>(bits)};

      ASSERT_EQ(E8m0Scale(bits, int8, ScaleRule::kRceil),
                least_scale(amax, largest))
          << amax;
      ASSERT_EQ(E8m0Scale(bits, int8, ScaleRule::kCeil), least_scale(amax, 1))
          << amax;
      ASSERT_EQ(E8m0Scale(bits, int8, ScaleRule::kFloor), exponent) << amax;
    }
  }
}

// ---- Scalings ---------------------------------------------------------------

TEST(TwoLevel, TensorsScaleIsWhatLiftsItsLargestBlockTo448) {
  // The tensor's largest magnitude is 6 * 448 * 2: what is left of it under a
  // scale of the tensor of 2 is 448 and 1 for the blocks.
  Quantization quantization =
      Scaled("e2m1", ScaleFormat::kE4m3, ScaleRule::kTe, {1, 2});
  quantization.scaling = Scaling::kTwoLevel;
  for (const ScaleRule rule : {ScaleRule::kTe, ScaleRule::kTorchao}) {
    quantization.scale_rule = rule;

    const QuantizedTensor q =
        QuantizeRow({5376, -2688, 12, -2, 0, 0}, quantization);

    EXPECT_EQ(q.tensor_scale, 2.0f);
    EXPECT_EQ(q.scale_bytes(0, 0), 0x7E);
    EXPECT_EQ(q.scale_bytes(0, 1), 0x38);
    EXPECT_EQ(q.scale_bytes(0, 2), rule == ScaleRule::kTe ? 0x00 : 0x08);
    EXPECT_THAT(Flat(q.codes), ElementsAre(0x7, 0xD, 0x7, 0xA, 0, 0));
    EXPECT_THAT(Flat(CellValues(q, quantization)),
                ElementsAre(2688, -1344, 6, -1, 0, 0));
    EXPECT_THAT(Flat(Dequantize(q, quantization)),
                ElementsAre(5376, -2688, 12, -2, 0, 0));
    EXPECT_EQ(QuantizeRow({0, 0}, quantization).tensor_scale, 1.0f);
  }
}

TEST(Delayed, ScaleIsOneAtFirstAndThenThatOfTheHistory) {
  Quantization quantization =
      Scaled("e4m3", ScaleFormat::kFp32, ScaleRule::kTe);
  quantization.scaling = Scaling::kDelayed;
  quantization.history = 4;

  const QuantizedTensor first = QuantizeRow({4, 500}, quantization);
  // 448 / 2 = 224: 4 saturates, 1 is 224.
  const QuantizedTensor later =
      QuantizeRow({4, -1}, quantization, {.history = 2.0f});
  const QuantizedTensor zeros =
      QuantizeRow({4, -1}, quantization, {.history = 0.0f});

  EXPECT_THAT(Flat(first.scales), ElementsAre(1.0f));
  EXPECT_THAT(Flat(first.codes), ElementsAre(0x48, 0x7E));
  EXPECT_THAT(Flat(later.scales), ElementsAre(1.0f / 224));
  EXPECT_THAT(Flat(later.codes), ElementsAre(0x7E, 0xF6));
  EXPECT_THAT(Flat(zeros.scales), ElementsAre(1.0f));
}

}  // namespace
}  // namespace isoloss::formats::scaling_test
