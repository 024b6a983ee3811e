// Quantize of quantize.h against small cases that were worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/formats/rules.h"
#include "quantize_cases.h"
#include "support/mx_elements.h"

namespace isoloss::formats::quantize_definition_test {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kFloatMax = std::numeric_limits<float>::max();

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
  quantization.scaling = Scaling::kTwoLevel;
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
    // Beside a NaN the finite values of a cell count for the tensor's maximum.
    EXPECT_NEAR(QuantizeRow({kNan, 896, 3, 1.5f}, quantization).tensor_scale,
                896.0f / 2688, 0x1p-25);
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
                               .rounding = RoundingMode::kStochastic,
                               .random_bits = 12};
  const TensorState state = {.seed = 9, .stream = 4};

  const QuantizedTensor q = Quantize(values.cview(), quantization, state);
  const QuantizedTensor other =
      Quantize(values.cview(), quantization, {.seed = 9, .stream = 5});

  for (size_t row = 0; row < values.rows(); ++row) {
    for (size_t col = 0; col < values.cols(); ++col) {
      const uint32_t code =
          Encode(*quantization.element, values(row, col), Overflow::kNonFinite,
                 quantization.rounding, RandomBitsOf(state, row, col, 12));
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
  quantization.rounding = RoundingMode::kHalfAway;
  EXPECT_THAT(CodesOfRow(row, quantization), ElementsAre(6, 5, 9));
  quantization.rounding = RoundingMode::kTowardZero;
  EXPECT_THAT(CodesOfRow(row, quantization), ElementsAre(6, 4, 8));
}

}  // namespace
}  // namespace isoloss::formats::quantize_definition_test
