#include "isoloss/formats/mx_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "support/mx_elements.h"

namespace isoloss::formats::mx_block_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr ScaleRule kAllModes[] = {ScaleRule::kFloor, ScaleRule::kCeil,
                                   ScaleRule::kEven, ScaleRule::kRceil};

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t ToBits(float value) { return std::bit_cast<uint32_t>(value); }

Quantization Spec(std::string_view element, ScaleRule mode,
                  NonFinitePolicy policy = NonFinitePolicy::kBlockNan) {
  return {&FormatByName(element), mode, policy};
}

MxMatrix QuantizeRow(std::span<const float> values, const Quantization& spec) {
  return QuantizeMx({values.data(), 1, values.size()}, spec);
}

// ---- Cases of torchao's torchao/testing/_mxfp8_test_utils.py ---------------

struct TableRow {
  const char* name;
  std::vector<float> head;  ///< the block's first elements; the rest is +0
  int floor_scale;
  std::vector<int> floor_codes;  ///< of head
  int rceil_scale;
  std::vector<int> rceil_codes;
};

std::vector<TableRow> Section17() {
  const float max_float = std::numeric_limits<float>::max();
  return {
      {"all zero", {0.0f, -0.0f}, 0, {0x00, 0x80}, 0, {0x00, 0x80}},
      {"smallest normal", {0x1p-126f}, 0, {0x40}, 0, {0x40}},
      {"+-448", {448.0f, -448.0f}, 127, {0x7E, 0xFE}, 127, {0x7E, 0xFE}},
      {"largest float", {max_float}, 246, {0x7E}, 247, {0x78}},
      {"largest BF16", {FromBits(0x7F7F0000)}, 246, {0x7E}, 247, {0x78}},
      {"smallest BF16 subnormal", {0x1p-133f}, 0, {0x08}, 0, {0x08}},
      {"smallest FP32 subnormal", {0x1p-149f}, 0, {0x00}, 0, {0x00}},
      {"1.0 with subnormals",
       {1.0f, 0x1p-149f, -0x1p-127f},
       119,
       {0x78, 0x00, 0x80},
       119,
       {0x78, 0x00, 0x80}},
      {"480", {480.0f}, 127, {0x7E}, 128, {0x77}},
      {"3.5 + 1 ulp", {FromBits(0x40600001)}, 120, {0x7E}, 121, {0x76}},
      {"just below 512", {FromBits(0x43FFFFFF)}, 127, {0x7E}, 128, {0x78}},
      {"512", {512.0f}, 128, {0x78}, 128, {0x78}},
  };
}

TEST(QuantizeMx, ReproducesTorchaosTableOfE4m3Blocks) {
  for (const TableRow& row : Section17()) {
    SCOPED_TRACE(row.name);
    std::vector<float> block = row.head;
    block.resize(kMxBlockSize, 0.0f);

    const MxMatrix floor = QuantizeRow(block, Spec("e4m3", ScaleRule::kFloor));
    const MxMatrix rceil = QuantizeRow(block, Spec("e4m3", ScaleRule::kRceil));

    EXPECT_EQ(floor.scales(0, 0), row.floor_scale);
    EXPECT_EQ(rceil.scales(0, 0), row.rceil_scale);
    for (size_t i = 0; i < kMxBlockSize; ++i) {
      const bool named = i < row.head.size();
      EXPECT_EQ(floor.codes(0, i), named ? row.floor_codes[i] : 0);
      EXPECT_EQ(rceil.codes(0, i), named ? row.rceil_codes[i] : 0);
    }
  }
}

// ---- Scale rules ------------------------------------------------------------

TEST(MxScale, CeilAndRceilDifferBelowTheLargestValue) {
  // torchao issue 2035.
  const float amax = 150.0f;

  EXPECT_EQ(MxScale({&amax, 1}, Spec("e4m3", ScaleRule::kRceil)), 126);
  EXPECT_EQ(MxScale({&amax, 1}, Spec("e4m3", ScaleRule::kCeil)), 127);
}

TEST(E8m0, EveryByteIsItsPowerOfTwoAndReciprocal) {
  for (int byte = 0; byte < 255; ++byte) {
    const auto scale = static_cast<uint8_t>(byte);
    EXPECT_EQ(DecodeE8m0(scale), std::ldexp(1.0f, byte - 127));
    EXPECT_EQ(E8m0Reciprocal(scale), std::ldexp(1.0f, 127 - byte));
  }
  EXPECT_EQ(ToBits(DecodeE8m0(255)), 0x7FC00000u);
  EXPECT_EQ(ToBits(E8m0Reciprocal(255)), 0x7FC00000u);
}

// ---- docs/numerics.md, section 7: corners a to f ----------------------------

/// Magnitude from which rounding to m + 1 significant bits reaches 2^128.
float RoundsUpToTwoTo128(const Format& element) {
  return (2.0f - std::ldexp(1.0f, -element.mantissa_bits - 1)) * 0x1p127f;
}

float QuantizedDequantized(float value, const Quantization& spec) {
  float result = 0.0f;
  QuantizeDequantizeBlock({&value, 1}, spec, {&result, 1});
  return result;
}

TEST(MxCorner, AScaleRoundedUpDequantizesToInfinityNearFltMax) {
  for (const Format* element : MxElements()) {
    SCOPED_TRACE(element->name);
    const float edge = RoundsUpToTwoTo128(*element);
    const float below = std::nextafter(edge, 0.0f);
    for (const ScaleRule mode : {ScaleRule::kCeil, ScaleRule::kRceil}) {
      const Quantization spec{element, mode, NonFinitePolicy::kBlockNan};
      EXPECT_EQ(QuantizedDequantized(edge, spec), kInfinity);
      EXPECT_EQ(QuantizedDequantized(-edge, spec), -kInfinity);
      EXPECT_TRUE(std::isfinite(QuantizedDequantized(below, spec)));
    }
    const float largest = std::numeric_limits<float>::max();
    EXPECT_TRUE(std::isfinite(QuantizedDequantized(
        largest, {element, ScaleRule::kFloor, NonFinitePolicy::kBlockNan})));
  }
}

TEST(MxCorner, BEvenMakesAFiniteBlockNanNearFltMax) {
  for (const Format* element : MxElements()) {
    SCOPED_TRACE(element->name);
    const Quantization spec{element, ScaleRule::kEven,
                            NonFinitePolicy::kBlockNan};
    const float edge = RoundsUpToTwoTo128(*element);
    const float below = std::nextafter(edge, 0.0f);

    EXPECT_EQ(MxScale({&edge, 1}, spec), 255);
    EXPECT_TRUE(std::isnan(QuantizedDequantized(edge, spec)));
    EXPECT_EQ(MxScale({&below, 1}, spec), 254 - element->emax);
  }
}

TEST(MxCorner, CDSubnormalInputsUnderTheLeastScaleAreKept) {
  // Multiples of the format's smallest step times 2^-127 that FP32 can hold.
  for (const Format* element : MxElements()) {
    SCOPED_TRACE(element->name);
    for (uint8_t code = 1; code <= element->max_code; ++code) {
      const float value = Decode(*element, code) * 0x1p-127f;
      if (value == 0.0f || value / 0x1p-127f != Decode(*element, code))
        continue;
      for (const ScaleRule mode : {ScaleRule::kFloor, ScaleRule::kRceil}) {
        const Quantization spec{element, mode, NonFinitePolicy::kBlockNan};
        const float values[] = {value, -value};

        const MxMatrix q = QuantizeRow(values, spec);

        EXPECT_EQ(q.scales(0, 0), 0);
        EXPECT_EQ(q.codes(0, 0), code);
        EXPECT_EQ(QuantizedDequantized(value, spec), value);
      }
    }
  }
}

TEST(MxCorner, EScaleComesFromTheUnroundedMaximum) {
  // In BF16 the maximum would be 512, one exponent higher.
  const float amax = FromBits(0x43FFFFFF);

  EXPECT_EQ(MxScale({&amax, 1}, Spec("e4m3", ScaleRule::kFloor)), 127);
}

TEST(MxCorner, FPartialBlockEqualsOnePaddedWithZeros) {
  const CounterRng rng(1, StreamId("partial block"));
  for (size_t length = 1; length <= 3 * kMxBlockSize; ++length) {
    std::vector<float> values(length);
    for (size_t i = 0; i < length; ++i) {
      const double exponent = 20.0 * rng.Uniform(200 * length + 2 * i) - 10.0;
      values[i] = static_cast<float>(
          std::exp2(exponent) * (rng.Uniform(200 * length + 2 * i + 1) - 0.5));
    }
    std::vector<float> padded = values;
    padded.resize((length + 31) / 32 * 32, 0.0f);
    for (const ScaleRule mode : kAllModes) {
      const MxMatrix partial = QuantizeRow(values, Spec("e4m3", mode));
      const MxMatrix whole = QuantizeRow(padded, Spec("e4m3", mode));

      ASSERT_EQ(partial.scales.cols(), whole.scales.cols());
      for (size_t b = 0; b < whole.scales.cols(); ++b) {
        ASSERT_EQ(partial.scales(0, b), whole.scales(0, b));
      }
      for (size_t i = 0; i < length; ++i) {
        ASSERT_EQ(partial.codes(0, i), whole.codes(0, i));
      }
    }
  }
}

// ---- docs/numerics.md, section 6 -------------------------------------------

TEST(NonFinitePolicy, BlockNanMakesTheWholeBlockNanWhateverIsBad) {
  for (const Format* element : MxElements()) {
    for (const ScaleRule mode : kAllModes) {
      for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
        const Quantization spec{element, mode, NonFinitePolicy::kBlockNan};
        const std::vector<float> block = {1.0f, bad, -2.0f};
        std::vector<float> values(block.size());

        const MxMatrix q = QuantizeRow(block, spec);
        QuantizeDequantizeBlock(block, spec, values);

        EXPECT_EQ(q.scales(0, 0), 255);
        for (size_t i = 0; i < block.size(); ++i) {
          EXPECT_EQ(q.codes(0, i), element->nan_code);
          EXPECT_EQ(ToBits(values[i]), 0x7FC00000u);
        }
      }
    }
  }
}

TEST(NonFinitePolicy, TeKeepsTheNanAloneAndSaturatesTheInfinity) {
  const auto policy = NonFinitePolicy::kTe;
  const float with_nan[] = {448.0f, kNan, -kNan, 1.0f};
  const float with_infinity[] = {448.0f, kInfinity, -kInfinity, kNan};
  const float all_nan[] = {kNan, kNan};

  const MxMatrix fp8 =
      QuantizeRow(with_nan, Spec("e4m3", ScaleRule::kRceil, policy));
  const MxMatrix fp4 =
      QuantizeRow(with_nan, Spec("e2m1", ScaleRule::kRceil, policy));
  const MxMatrix infinite =
      QuantizeRow(with_infinity, Spec("e4m3", ScaleRule::kRceil, policy));
  const MxMatrix nan =
      QuantizeRow(all_nan, Spec("e4m3", ScaleRule::kRceil, policy));

  const auto codes = [](const MxMatrix& q) {
    return std::vector<int>(q.codes.data(), q.codes.data() + q.codes.size());
  };
  EXPECT_EQ(fp8.scales(0, 0), 127);
  EXPECT_EQ(codes(fp8), (std::vector<int>{0x7E, 0x7F, 0xFF, 0x38}));
  // 448 / 6 = 74.7 lies below 2^7: scale byte 134, 448 * 2^-7 = 3.5 is a tie
  // between 3 and 4 that goes to the even code.
  EXPECT_EQ(fp4.scales(0, 0), 134);
  EXPECT_EQ(codes(fp4), (std::vector<int>{0x6, 0x7, 0x7, 0x0}));
  EXPECT_EQ(infinite.scales(0, 0), 254);
  EXPECT_EQ(codes(infinite), (std::vector<int>{0x00, 0x7E, 0xFE, 0x7F}));
  EXPECT_EQ(nan.scales(0, 0), 0);
  EXPECT_EQ(codes(nan), (std::vector<int>{0x7F, 0x7F}));
}

// ---- Shapes, agreement, errors ----------------------------------------------

TEST(QuantizeMx, WorstErrorOfTheBlockMaximumMatchesTheDerivedBound) {
  // Scaling is exact, so only rounding and saturation lose anything. kFloor
  // leaves the scaled maximum in [P, 2P), P the power of two of the largest
  // value M: up to M it is rounded (relative 2^-(m+1) at most), above M it
  // saturates and loses less than (2P - M) / 2P. kRceil only rounds.
  for (const Format* element : MxElements()) {
    const double rounding = std::ldexp(1.0, -element->mantissa_bits - 1);
    const double largest = static_cast<double>(MaxFinite(*element));
    const double two_p = std::ldexp(1.0, element->emax + 1);
    const double saturation = 1.0 - largest / two_p;
    for (const ScaleRule mode : {ScaleRule::kFloor, ScaleRule::kRceil}) {
      SCOPED_TRACE(std::string(element->name) + " " +
                   std::string(ScaleRuleName(mode)));
      // Round-to-nearest reaches its relative bound 2^-(m+1) / (1 + 2^-(m+1))
      // at the first midpoint above a power of two.
      const double bound = mode == ScaleRule::kFloor
                               ? std::max(rounding / (1 + rounding), saturation)
                               : rounding / (1 + rounding);
      double worst = 0.0;
      for (int step = 0; step < (1 << 16); ++step) {
        const float value = 1.0f + std::ldexp(static_cast<float>(step), -16);
        const float kept = QuantizedDequantized(
            value, {element, mode, NonFinitePolicy::kBlockNan});
        worst = std::max(worst, std::fabs(static_cast<double>(kept) -
                                          static_cast<double>(value)) /
                                    static_cast<double>(value));
      }

      EXPECT_LE(worst, bound);
      EXPECT_GT(worst, 0.99 * bound) << "bound no longer tight: new rounding?";
    }
  }
}

TEST(QuantizeMx, RowsOfAStridedViewAreBlockedSeparately) {
  Matrix<float> storage(3, 50);
  for (size_t i = 0; i < storage.size(); ++i) {
    storage.data()[i] = static_cast<float>(i * i) - 700.0f;
  }
  const MatrixView<const float> view = storage.cview().Cols(3, 40);
  const Quantization spec = Spec("e5m2", ScaleRule::kRceil);

  const MxMatrix all = QuantizeMx(view, spec);
  const Matrix<float> values = DequantizeMx(all, *spec.element);

  ASSERT_EQ(all.scales.cols(), 2u);
  for (size_t row = 0; row < 3; ++row) {
    for (size_t first : {size_t{0}, size_t{32}}) {
      const size_t count = first == 0 ? 32 : 8;
      std::vector<float> block(view.Row(row) + first,
                               view.Row(row) + first + count);
      EXPECT_EQ(all.scales(row, first / 32), MxScale(block, spec));

      // In place: the operand definition agrees with the two-step one.
      QuantizeDequantizeBlock(block, spec, block);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(ToBits(values(row, first + i)), ToBits(block[i]));
      }
    }
  }
}

TEST(QuantizeMx, NothingInGivesNothingOut) {
  const Quantization spec = Spec("e4m3", ScaleRule::kRceil);

  const MxMatrix no_rows = QuantizeMx({nullptr, 0, 40}, spec);
  const MxMatrix no_cols = QuantizeMx({nullptr, 3, 0}, spec);

  EXPECT_EQ(no_rows.codes.size() + no_rows.scales.size(), 0u);
  EXPECT_EQ(no_cols.scales.rows(), 3u);
  EXPECT_EQ(no_cols.scales.cols(), 0u);
  EXPECT_EQ(DequantizeMx(no_cols, *spec.element).rows(), 3u);
}

TEST(QuantizeDequantizeBlock, ValuesOfBf16BlocksAreBf16Numbers) {
  // docs/numerics.md, section 8, claim 1: the GEMM kernel relies on it.
  const CounterRng rng(7, StreamId("bf16 blocks"));
  std::vector<float> block(kMxBlockSize);
  uint64_t draw = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    // Blocks centred anywhere in the exponent range, 24 binades wide.
    const auto top = static_cast<uint32_t>(rng.Below(draw++, 255));
    for (float& value : block) {
      const uint64_t bits = rng.Bits(draw++);
      const auto drop = static_cast<uint32_t>(bits >> 32) % 24;
      const uint32_t exponent = top > drop ? top - drop : 0;
      value =
          DecodeBf16(static_cast<uint16_t>((bits & 0x807F) | exponent << 7));
    }
    for (const Format* element : MxElements()) {
      for (const ScaleRule mode : kAllModes) {
        std::vector<float> values(block.size());

        QuantizeDequantizeBlock(
            block, {element, mode, NonFinitePolicy::kBlockNan}, values);

        for (const float value : values) {
          ASSERT_EQ(ToBits(RoundToBf16(value)), ToBits(value))
              << element->name << " " << ScaleRuleName(mode);
        }
      }
    }
  }
}

TEST(DequantizeMx, NamesBothShapesWhenScalesDoNotFitCodes) {
  MxMatrix quantized;
  quantized.codes.Resize(3, 40);
  quantized.scales.Resize(3, 1);

  EXPECT_THAT([&] { DequantizeMx(quantized, FormatByName("e4m3")); },
              ThrowsMessage<Error>(AllOf(HasSubstr("3x40"), HasSubstr("3x1"))));
}

TEST(ScaleRuleName, RoundTripsAndAnUnknownNameListsTheKnownOnes) {
  for (const ScaleRule mode : kAllModes) {
    EXPECT_EQ(ScaleRuleByName(ScaleRuleName(mode)), mode);
  }
  EXPECT_EQ(NonFinitePolicyName(NonFinitePolicy::kBlockNan), "block_nan");
  EXPECT_EQ(NonFinitePolicyName(NonFinitePolicy::kTe), "te");
  EXPECT_THAT([] { ScaleRuleByName("up"); },
              ThrowsMessage<Error>(HasSubstr("floor, ceil, even, rceil")));
}

}  // namespace
}  // namespace isoloss::formats::mx_block_test
