// Quantize of quantize.h against small cases that were worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/formats/scaling.h"
#include "support/mx_elements.h"

namespace isoloss::formats {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kFloatMax = std::numeric_limits<float>::max();

Quantization Scaled(std::string_view element, ScaleFormat format,
                    ScaleRule rule, Cell cell = {0, 0}) {
  Quantization quantization;
  quantization.element = &FormatByName(element);
  quantization.scale_format = format;
  quantization.scale_rule = rule;
  quantization.cell = cell;
  EXPECT_EQ(WrongQuantization(quantization), "");
  return quantization;
}

QuantizedTensor QuantizeRow(const std::vector<float>& row,
                            const Quantization& quantization,
                            const TensorState& state = {}) {
  return Quantize({row.data(), 1, row.size()}, quantization, state);
}

template <typename T>
std::vector<T> Flat(const Matrix<T>& matrix) {
  return {matrix.data(), matrix.data() + matrix.size()};
}

std::vector<uint32_t> CodesOfRow(const std::vector<float>& row,
                                 const Quantization& quantization,
                                 const TensorState& state = {}) {
  return Flat(QuantizeRow(row, quantization, state).codes);
}

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
  quantization.scaling = &ScalingByName("two_level");
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
  quantization.scaling = &ScalingByName("delayed");
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

TEST(Scaling, TableHoldsTheRegisteredOnes) {
  std::vector<std::string> names;
  for (const Scaling* scaling : AllScalings()) {
    names.emplace_back(scaling->name);
    EXPECT_EQ(&ScalingByName(scaling->name), scaling);
    EXPECT_FALSE(scaling->source.empty());
  }

  EXPECT_THAT(names, ElementsAre("current", "delayed", "two_level"));
  EXPECT_THAT([] { ScalingByName("delay"); },
              ThrowsMessage<Error>(HasSubstr("current, delayed, two_level")));
}

// ---- Casts without a scale --------------------------------------------------

TEST(WithoutScale, ElementsAreCastsThatOverflowAsTheFormatDoes) {
  const auto cast = [](std::string_view element, float value) {
    return CodesOfRow({value}, {.element = &FormatByName(element),
                                .scale_format = ScaleFormat::kNone})[0];
  };

  EXPECT_EQ(cast("bf16", 1), 0x3F80u);
  EXPECT_EQ(cast("bf16", kFloatMax), 0x7F80u);
  EXPECT_EQ(cast("bf16", -kInfinity), 0xFF80u);
  EXPECT_EQ(cast("fp16", 1), 0x3C00u);
  EXPECT_EQ(cast("fp16", -65520), 0xFC00u);
  EXPECT_EQ(cast("fp16", 65519), 0x7BFFu);
  EXPECT_EQ(cast("fp16", -kNan), 0xFE00u);
  EXPECT_EQ(cast("tf32", 1), 0x1FC00u);
  EXPECT_EQ(cast("e5m2", 1e6f), 0x7Cu);
  EXPECT_EQ(cast("e4m3", 1e6f), 0x7Eu);
  EXPECT_EQ(cast("e4m3", kNan), 0x7Fu);
  EXPECT_EQ(cast("e2m1", kNan), 0x7u);
}

// ---- What is not finite -----------------------------------------------------

TEST(NonFinite, BlockNanMakesItsCellNanAndNoOther) {
  for (const ScaleFormat format : {ScaleFormat::kFp32, ScaleFormat::kPow2,
                                   ScaleFormat::kE4m3, ScaleFormat::kE8m0}) {
    for (const char* element : {"e4m3", "e2m1", "int8"}) {
      for (const float bad : {kNan, kInfinity, -kInfinity}) {
        const Quantization quantization = Scaled(
            element, format,
            format == ScaleFormat::kE8m0 ? ScaleRule::kRceil : ScaleRule::kTe,
            {1, 2});

        const QuantizedTensor q = QuantizeRow({bad, 1, 1, 1}, quantization);
        const Matrix<float> values = Dequantize(q, quantization);

        EXPECT_TRUE(std::isnan(values(0, 0)) && std::isnan(values(0, 1)));
        EXPECT_TRUE(std::isfinite(values(0, 2)));
        EXPECT_EQ(q.codes(0, 1), FormatByName(element).nan_code);
        if (format == ScaleFormat::kE4m3) {
          EXPECT_EQ(q.scale_bytes(0, 0), 0x7F);
        }
        if (format == ScaleFormat::kE8m0) {
          EXPECT_EQ(q.scale_bytes(0, 0), 0xFF);
        }
      }
    }
  }
}

TEST(NonFinite, TeKeepsANanAloneAndSaturatesAnInfinity) {
  const auto te = [](std::string_view element, ScaleFormat format) {
    Quantization quantization = Scaled(element, format, ScaleRule::kTe);
    quantization.non_finite = NonFinitePolicy::kTe;
    return quantization;
  };

  // 4 is the largest but for the NaN: 448.
  EXPECT_THAT(CodesOfRow({-kNan, 4}, te("e4m3", ScaleFormat::kFp32)),
              ElementsAre(0xFF, 0x7E));
  EXPECT_THAT(CodesOfRow({-kNan, 4}, te("e2m1", ScaleFormat::kFp32)),
              ElementsAre(0x7, 0x7));
  // The scale is 1 beside an infinity, or 448 if it is stored as E4M3.
  EXPECT_THAT(CodesOfRow({-kInfinity, 4}, te("e4m3", ScaleFormat::kPow2)),
              ElementsAre(0xFE, 0x48));
  const QuantizedTensor e4m3 =
      QuantizeRow({-kInfinity, 896}, te("e2m1", ScaleFormat::kE4m3));
  EXPECT_THAT(Flat(e4m3.scale_bytes), ElementsAre(0x7E));
  EXPECT_THAT(Flat(e4m3.codes), ElementsAre(0xF, 0x4));
}

TEST(NonFinite, UnderAScaleOfTheTensorAnInfinityMakesThatOne) {
  Quantization quantization =
      Scaled("e2m1", ScaleFormat::kE4m3, ScaleRule::kTe, {1, 2});
  quantization.scaling = &ScalingByName("two_level");
  for (const ScaleRule rule : {ScaleRule::kTe, ScaleRule::kTorchao}) {
    quantization.scale_rule = rule;

    // TransformerEngine: the cell's scale is 448, so that 896 stays; 3 and 1.5
    // have 3 / 6 = 0.5.
    quantization.non_finite = NonFinitePolicy::kTe;
    const QuantizedTensor te =
        QuantizeRow({-kInfinity, 896, 3, 1.5f}, quantization);
    // A NaN cell leaves the others as if it were not there: 3 / 2688.
    quantization.non_finite = NonFinitePolicy::kBlockNan;
    const QuantizedTensor block_nan =
        QuantizeRow({-kInfinity, 896, 3, 1.5f}, quantization);

    EXPECT_EQ(te.tensor_scale, 1.0f);
    EXPECT_THAT(Flat(Dequantize(te, quantization)),
                ElementsAre(-2688, 896, 3, 1.5f));
    EXPECT_NEAR(block_nan.tensor_scale, 3.0f / 2688, 0x1p-30);
    EXPECT_EQ(block_nan.scale_bytes(0, 1), 0x7E);
  }
}

// ---- Cells ------------------------------------------------------------------

TEST(Cells, ThatDoNotDivideTheTensorAreSmallerAtItsEnds) {
  // 3 x 5 in cells of 2 x 3: each cell's largest element is the largest value.
  Matrix<float> values(3, 5);
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = static_cast<float>(i + 1);
  }
  const Quantization quantization =
      Scaled("e4m3", ScaleFormat::kFp32, ScaleRule::kDeepgemm, {2, 3});

  const QuantizedTensor q = Quantize(values.cview(), quantization);

  ASSERT_EQ(q.scales.rows(), 2u);
  ASSERT_EQ(q.scales.cols(), 2u);
  EXPECT_THAT(Flat(q.scales),
              ElementsAre(8.0f / 448, 10.0f / 448, 13.0f / 448, 15.0f / 448));
  for (const auto& [row, col] : {std::pair{1, 2}, {1, 4}, {2, 2}, {2, 4}}) {
    EXPECT_EQ(q.codes(row, col), 0x7Eu);
  }
}

TEST(Cells, OfZeroAreTheWholeExtent) {
  Matrix<float> values(2, 40);
  values(0, 0) = 1;
  values(1, 39) = 2;
  const auto scales = [&](Cell cell) {
    return Flat(Quantize(values.cview(), Scaled("e4m3", ScaleFormat::kFp32,
                                                ScaleRule::kDeepgemm, cell))
                    .scales);
  };

  EXPECT_THAT(scales({0, 0}), ElementsAre(2.0f / 448));
  EXPECT_THAT(scales({1, 0}), ElementsAre(1.0f / 448, 2.0f / 448));
  EXPECT_THAT(scales({0, 20}), ElementsAre(1.0f / 448, 2.0f / 448));
}

TEST(Cells, NothingInGivesNothingOut) {
  for (const Cell cell : {Cell{0, 0}, Cell{1, 16}}) {
    const Quantization quantization =
        Scaled("e4m3", ScaleFormat::kFp32, ScaleRule::kTe, cell);

    const QuantizedTensor no_rows = Quantize({nullptr, 0, 40}, quantization);
    const QuantizedTensor no_cols = Quantize({nullptr, 3, 0}, quantization);

    EXPECT_EQ(no_rows.codes.size() + no_rows.scales.size(), 0u);
    EXPECT_EQ(no_cols.codes.size() + no_cols.scales.size(), 0u);
    EXPECT_EQ(Dequantize(no_cols, quantization).rows(), 3u);
  }
}

// ---- MX ---------------------------------------------------------------------

/// Rows of any bits, of normal numbers, and of what is special.
Matrix<float> Wild(size_t rows, size_t cols) {
  Matrix<float> values(rows, cols);
  const CounterRng rng(5, StreamId("wild"));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = rng.Bits(i);
    const size_t row = i / cols;
    const auto any = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (row % 4 == 0) {
      // Any but for the exponent of infinities and NaNs.
      values.data()[i] =
          std::bit_cast<float>(static_cast<uint32_t>(bits) & ~(1u << 23));
    } else if (row % 4 == 1) {
      values.data()[i] = static_cast<float>(rng.Uniform(i) - 0.5);
    } else if (row % 4 == 2) {
      values.data()[i] = std::ldexp(static_cast<float>(rng.Uniform(i)), -140);
    } else {
      values.data()[i] = bits >> 40 == 0 ? any : std::copysign(0.0f, any);
    }
  }
  values(3, 1) = kNan;
  values(7, 2) = -kInfinity;
  values(1, 40) = 448;
  values(5, 40) = kFloatMax;
  return values;
}

TEST(Mx, IsAKindOfQuantize) {
  const Matrix<float> values = Wild(64, 75);
  for (const Format* element : MxElements()) {
    for (const ScaleRule rule : {ScaleRule::kFloor, ScaleRule::kCeil,
                                 ScaleRule::kEven, ScaleRule::kRceil}) {
      for (const auto policy :
           {NonFinitePolicy::kBlockNan, NonFinitePolicy::kTe}) {
        const Quantization spec = {element, rule, policy};
        SCOPED_TRACE(QuantizationName(spec));

        const MxMatrix mx = QuantizeMx(values.cview(), spec);
        const QuantizedTensor q = Quantize(values.cview(), spec);
        const Matrix<float> from_mx = DequantizeMx(mx, *element);
        const Matrix<float> from_q = Dequantize(q, spec);

        ASSERT_EQ(Flat(mx.scales), Flat(q.scale_bytes));
        for (size_t i = 0; i < q.codes.size(); ++i) {
          ASSERT_EQ(mx.codes.data()[i], q.codes.data()[i]) << i;
          const auto bits = std::bit_cast<uint32_t>(from_q.data()[i]);
          ASSERT_EQ(std::bit_cast<uint32_t>(from_mx.data()[i]), bits) << i;
        }
      }
    }
  }
}

// ---- Rounding ---------------------------------------------------------------

TEST(Stochastic, ElementsGetTheBitsOfTheirPlace) {
  Matrix<float> values(5, 40);
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = 1 + static_cast<float>(i) / 997;
  }
  Quantization quantization = {.element = &FormatByName("e4m3"),
                               .scale_format = ScaleFormat::kNone,
                               .rounding = &RoundingModeByName("stochastic"),
                               .random_bits = 12};
  const TensorState state = {.seed = 9, .stream = 4};

  const QuantizedTensor q = Quantize(values.cview(), quantization, state);
  const QuantizedTensor other =
      Quantize(values.cview(), quantization, {.seed = 9, .stream = 5});

  for (size_t row = 0; row < values.rows(); ++row) {
    for (size_t col = 0; col < values.cols(); ++col) {
      const uint32_t code =
          Encode(*quantization.element, values(row, col), Overflow::kNonFinite,
                 *quantization.rounding, RandomBitsOf(state, row, col, 12));
      ASSERT_EQ(q.codes(row, col), code);
    }
  }
  EXPECT_NE(Flat(q.codes), Flat(other.codes));
  // Neither scales nor cells change the bits of an element; powers of two
  // leave its value, too.
  const std::vector<float> expected = Flat(CellValues(q, quantization));
  quantization.scale_format = ScaleFormat::kPow2;
  quantization.scale_rule = ScaleRule::kTe;
  for (const Cell cell : {Cell{1, 7}, Cell{2, 16}, Cell{0, 0}}) {
    quantization.cell = cell;
    EXPECT_EQ(Flat(CellValues(Quantize(values.cview(), quantization, state),
                              quantization)),
              expected);
  }
}

TEST(Stochastic, BitsAreTheUpperOnesOfPhiloxWords) {
  const TensorState state = {.seed = 2, .stream = 3};
  const CounterRng rng(2, 3);
  const auto block = rng.Block(uint64_t{7} << 32 | 2);

  // Columns 16 to 23 are the eight halves of block 2 of row 7.
  for (size_t half = 0; half < 8; ++half) {
    const uint32_t word = block[half / 2] >> (16 * (half % 2)) & 0xFFFF;
    EXPECT_EQ(RandomBitsOf(state, 7, 16 + half, 16).value, word);
    EXPECT_EQ(RandomBitsOf(state, 7, 16 + half, 8).value, word >> 8);
    EXPECT_EQ(RandomBitsOf(state, 7, 16 + half, 8).count, 8);
  }
}

TEST(Rounded, OtherThanToNearestReachesTheCodes) {
  Quantization quantization = {.element = &FormatByName("e2m1"),
                               .scale_rule = ScaleRule::kFloor};
  const std::vector<float> row = {4, 2.5f, -0.25f};

  EXPECT_THAT(CodesOfRow(row, quantization), ElementsAre(6, 4, 8));
  quantization.rounding = &RoundingModeByName("half_away");
  EXPECT_THAT(CodesOfRow(row, quantization), ElementsAre(6, 5, 9));
  quantization.rounding = &RoundingModeByName("toward_zero");
  EXPECT_THAT(CodesOfRow(row, quantization), ElementsAre(6, 4, 8));
}

// ---- Transforms -------------------------------------------------------------

Quantization Transforming(std::string_view transform) {
  return {.element = &FormatByName("tf32"),
          .scale_format = ScaleFormat::kNone,
          .transform = &TransformByName(transform)};
}

TEST(TransformTest, RunsAreTransformedAndTheLastIsFilledUpWithZeros) {
  // The first row of the matrix is all ones; row r of element 16, a unit vector
  // of the second run, is the first column: all ones, too.
  std::vector<float> row(18);
  row[0] = 4;
  row[16] = 8;
  const Quantization quantization = Transforming("hadamard16");

  const QuantizedTensor q = QuantizeRow(row, quantization);
  const std::vector<float> values = Flat(Dequantize(q, quantization));

  ASSERT_EQ(values.size(), 32u);
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 16),
              Each(1.0f));
  EXPECT_THAT(std::vector<float>(values.begin() + 16, values.end()),
              Each(2.0f));
}

TEST(TransformTest, RowsAreThoseOfSylvestersMatrix) {
  // Entry (i, j) is 1/4 with the sign of the parity of i AND j.
  for (size_t j = 0; j < 16; ++j) {
    std::vector<float> run(16);
    run[j] = 1;

    TransformByName("hadamard16").apply(run, 0);

    for (size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(run[i], std::popcount(i & j) % 2 == 0 ? 0.25f : -0.25f);
    }
  }
}

TEST(TransformTest, OfBothOperandsKeepTheirProduct) {
  // Small integers: every operation of the transform is exact.
  const CounterRng rng(6, StreamId("transform"));
  std::vector<float> x(20);
  std::vector<float> y(20);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(rng.Below(2 * i, 9)) - 4;
    y[i] = static_cast<float>(rng.Below(2 * i + 1, 9)) - 4;
  }
  const auto dot = [](const std::vector<float>& a,
                      const std::vector<float>& b) {
    float sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  for (const Transform* transform : AllTransforms()) {
    SCOPED_TRACE(transform->name);
    const Quantization quantization = Transforming(transform->name);
    const auto values = [&](const std::vector<float>& row, uint64_t key) {
      return Flat(
          Dequantize(QuantizeRow(row, quantization, {.transform_key = key}),
                     quantization));
    };

    EXPECT_EQ(dot(values(x, 0xBEEF), values(y, 0xBEEF)), dot(x, y));
    EXPECT_NE(values(x, 0xBEEF), x);
    EXPECT_EQ(values(x, 0xBEEF) != values(x, 0x1234), transform->random);
    EXPECT_EQ(&TransformByName(transform->name), transform);
    EXPECT_FALSE(transform->source.empty());
  }
}

}  // namespace
}  // namespace isoloss::formats
