// Statistics of runs and blocks: results checked by hand, TransformerEngine's
// definitions, and that every target equals the definition.
#include "isoloss/kernels/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "gemm_cases.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/scalar/statistics.h"
#include "support/mx_elements.h"

namespace isoloss::kernels::statistics_test {
namespace {

using formats::NonFinitePolicy;
using formats::Quantization;
using formats::ScaleRule;
using testing::Each;
using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kSubnormal = std::numeric_limits<float>::denorm_min();
const float kNan = std::nanf("");

std::vector<Quantization> AllSpecs() {
  std::vector<Quantization> specs;
  for (const formats::Format* element : formats::MxElements()) {
    for (const ScaleRule mode : {ScaleRule::kFloor, ScaleRule::kCeil,
                                 ScaleRule::kEven, ScaleRule::kRceil}) {
      for (const auto policy :
           {NonFinitePolicy::kBlockNan, NonFinitePolicy::kTe}) {
        specs.push_back({element, mode, policy});
      }
    }
  }
  return specs;
}

Quantization Spec(std::string_view element,
                  ScaleRule mode = ScaleRule::kRceil) {
  return {&formats::FormatByName(element), mode};
}

/// Every field, doubles as their bits.
std::vector<uint64_t> Bits(const Moments& m) {
  return {std::bit_cast<uint64_t>(m.sum.high),
          std::bit_cast<uint64_t>(m.sum.low),
          std::bit_cast<uint64_t>(m.squares.high),
          std::bit_cast<uint64_t>(m.squares.low),
          std::bit_cast<uint64_t>(m.magnitudes),
          static_cast<uint64_t>(m.zeros),
          static_cast<uint64_t>(m.nonfinite),
          std::bit_cast<uint32_t>(m.min),
          std::bit_cast<uint32_t>(m.max),
          std::bit_cast<uint32_t>(m.smallest)};
}

std::vector<uint64_t> Bits(const QuantizationErrors& e) {
  return {std::bit_cast<uint64_t>(e.errors),
          std::bit_cast<uint64_t>(e.products),
          std::bit_cast<uint64_t>(e.quantized),
          std::bit_cast<uint64_t>(e.squares),
          static_cast<uint64_t>(e.pairs),
          static_cast<uint64_t>(e.underflows)};
}

std::vector<uint64_t> Bits(const BlockTally& tally) {
  std::vector<uint64_t> bits = {std::bit_cast<uint64_t>(tally.range),
                                static_cast<uint64_t>(tally.saturated)};
  for (const int64_t count : tally.places) bits.push_back(count);
  for (const int64_t count : tally.bytes) bits.push_back(count);
  return bits;
}

std::vector<uint64_t> Bits(MatrixView<const float> values) {
  std::vector<uint64_t> bits;
  for (size_t i = 0; i < values.rows(); ++i) {
    for (size_t j = 0; j < values.cols(); ++j) {
      bits.push_back(std::bit_cast<uint32_t>(values(i, j)));
    }
  }
  return bits;
}

/// QuantizeDequantizeBlock of each 32 elements along a run.
std::vector<float> Quantized(std::span<const float> run,
                             const Quantization& spec) {
  std::vector<float> out(run.size());
  for (size_t i = 0; i < run.size(); i += 32) {
    const size_t count = std::min<size_t>(32, run.size() - i);
    formats::QuantizeDequantizeBlock(run.subspan(i, count), spec,
                                     std::span(out).subspan(i, count));
  }
  return out;
}

const std::vector<Values>& AllValues() {
  static const std::vector<Values> all = {Values::kBf16, Values::kFp32,
                                          Values::kWild};
  return all;
}

constexpr size_t kWidths[] = {0,  1,  3,  15, 16,  17,  31,  32,
                              33, 47, 64, 97, 160, 256, 300, 1000};

class StatisticsOn : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, StatisticsOn,
                         testing::ValuesIn(SupportedTargets()), TargetTestName);

TEST_P(StatisticsOn, MomentsEqualTheDefinition) {
  for (const Values kind : AllValues()) {
    for (const size_t width : kWidths) {
      // One float before the run misaligns it.
      const Matrix<float> row = Filled(1, width + 1, kind, width);
      const std::span<const float> run(row.data() + 1, width);

      ASSERT_EQ(Bits(MomentsOf(run)), Bits(scalar::MomentsOf(run)))
          << width << " values of kind " << static_cast<int>(kind);
    }
  }
}

TEST_P(StatisticsOn, ErrorsEqualTheDefinition) {
  for (const Quantization& spec : AllSpecs()) {
    for (const Values kind : AllValues()) {
      for (const size_t width : kWidths) {
        const Matrix<float> row = Filled(1, width + 1, kind, width);
        const std::span<const float> run(row.data() + 1, width);
        const std::vector<float> quantized = Quantized(run, spec);

        ASSERT_EQ(Bits(ErrorsOf(run, quantized)),
                  Bits(scalar::ErrorsOf(run, quantized)))
            << spec.element->name << ' ' << width;
      }
    }
  }
}

TEST_P(StatisticsOn, TalliesEqualTheDefinition) {
  std::vector<Quantization> specs = AllSpecs();
  specs.push_back({});
  for (const Quantization& each : specs) {
    const Quantization* spec = each.element == nullptr ? nullptr : &each;
    for (const Values kind : AllValues()) {
      for (const size_t width : kWidths) {
        const size_t rows = 1 + width % 32;
        StridedMatrix block(rows, width, 1, 3);
        Fill(block.memory().view(), kind, width);
        BlockTally tally;
        BlockTally expected;
        TallyBlocksDown(block.view(), spec, tally);
        scalar::TallyBlocksDown(block.view(), spec, expected);
        ASSERT_EQ(Bits(tally), Bits(expected)) << width << " columns";

        const std::span<const float> run(block.view().Row(0), width);
        TallyBlocksAlong(run, spec, tally);
        scalar::TallyBlocksAlong(run, spec, expected);
        ASSERT_EQ(Bits(tally), Bits(expected)) << width << " elements";
      }
    }
  }
}

TEST_P(StatisticsOn, QuantizingDownEqualsTheDefinition) {
  for (const Quantization& spec : AllSpecs()) {
    for (const Values kind : AllValues()) {
      for (const size_t width : kWidths) {
        const size_t rows = 1 + width % 32;
        StridedMatrix block(rows, width, 1, 3);
        Fill(block.memory().view(), kind, width);
        StridedMatrix out(rows, width, 2, 5);
        StridedMatrix expected(rows, width, 2, 5);
        QuantizeDequantizeDown(block.view(), spec, out.view());
        scalar::QuantizeDequantizeDown(block.view(), spec, expected.view());

        // The whole memory: nothing around it may be written.
        ASSERT_EQ(Bits(out.memory().cview()), Bits(expected.memory().cview()))
            << spec.element->name << ' ' << rows << 'x' << width;
      }
    }
  }
}

TEST_P(StatisticsOn, MomentsOfAFewElements) {
  const Moments m = MomentsOf(std::vector<float>{
      -3.0f, 0.5f, 0.0f, -0.0f, kNan, kInf, -kInf, kSubnormal, 2.0f});

  EXPECT_EQ(m.sum.high, -0.5);
  EXPECT_EQ(m.sum.high + m.sum.low, -0.5);
  EXPECT_EQ(m.magnitudes, 5.5);
  EXPECT_EQ(m.squares.high, 13.25);
  EXPECT_EQ(m.zeros, 2);
  EXPECT_EQ(m.nonfinite, 3);
  EXPECT_EQ(m.min, -3.0f);
  EXPECT_EQ(m.max, 2.0f);
  EXPECT_EQ(m.smallest, kSubnormal);
}

TEST_P(StatisticsOn, MomentsOfNothingFinite) {
  for (const auto& run :
       {std::vector<float>{}, std::vector<float>{kNan, kInf, -kInf}}) {
    const Moments m = MomentsOf(run);

    EXPECT_EQ(m.nonfinite, static_cast<int64_t>(run.size()));
    EXPECT_EQ(m.zeros, 0);
    EXPECT_EQ(m.min, kInf);
    EXPECT_EQ(m.max, -kInf);
    EXPECT_EQ(m.smallest, kInf);
    EXPECT_EQ(m.sum.high, 0);
  }
}

TEST_P(StatisticsOn, ZeroIsNeverNegative) {
  const Moments m = MomentsOf(std::vector<float>(20, -0.0f));

  EXPECT_EQ(m.zeros, 20);
  EXPECT_FALSE(std::signbit(m.min));
  EXPECT_FALSE(std::signbit(m.max));
  EXPECT_EQ(m.smallest, kInf);
}

TEST_P(StatisticsOn, SumOfSquaresKeepsWhatOneDoubleLoses) {
  // 301 squares of 1 + 2^-23, each 2^-46 longer than 1 + 2^-22: 47 bits, and 9
  // more for 301 of them.
  const float x = 1.0f + 0x1p-23f;
  const Moments m = MomentsOf(std::vector<float>(301, x));
  const long double expected =
      301.0L * static_cast<long double>(x) * static_cast<long double>(x);

  EXPECT_EQ(static_cast<long double>(m.squares.high) +
                static_cast<long double>(m.squares.low),
            expected);
  EXPECT_NE(m.squares.low, 0.0);
}

TEST_P(StatisticsOn, ErrorsOfAFewPairs) {
  // The pairs with NaN and infinity count for nothing.
  const QuantizationErrors e = ErrorsOf(
      std::vector<float>{1.0f, -2.0f, 0.25f, 0.0f, kNan, 1.0f, kInf},
      std::vector<float>{1.5f, -2.0f, -0.0f, 0.0f, 1.0f, kInf, 448.0f});

  EXPECT_EQ(e.errors, 0.25 + 0.0625);
  EXPECT_EQ(e.products, 1.5 + 4.0);
  EXPECT_EQ(e.quantized, 2.25 + 4.0);
  EXPECT_EQ(e.squares, 1.0 + 4.0 + 0.0625);
  EXPECT_EQ(e.pairs, 4);
  EXPECT_EQ(e.underflows, 1);
}

TEST_P(StatisticsOn, TallyOfBlocksMadeByHand) {
  // E4M3, kFloor: amax 500 has exponent 8 = emax, so the byte is 127 and the
  // largest element value 448.
  const Quantization spec = Spec("e4m3", ScaleRule::kFloor);
  std::vector<float> run(96 + 5, 0.0f);
  run[3] = -500.0f;
  run[7] = 500.0f;  // a tie: the first counts
  run[9] = 448.0f;  // not beyond
  run[10] = 0.125f;
  run[64 + 31] = 1.0f;
  run[96] = 7.0f;  // a short block: no place
  BlockTally tally;
  TallyBlocksAlong(run, &spec, tally);

  EXPECT_EQ(tally.range, 4000.0);
  EXPECT_EQ(tally.saturated, 2);
  EXPECT_EQ(tally.places[3], 1);
  EXPECT_EQ(tally.places[31], 1);
  EXPECT_EQ(std::accumulate(tally.places.begin(), tally.places.end(), 0), 2);
  EXPECT_EQ(tally.bytes[127], 1);
  EXPECT_EQ(tally.bytes[0], 1);        // zeros
  EXPECT_EQ(tally.bytes[127 - 8], 1);  // 1.0
  EXPECT_EQ(tally.bytes[129 - 8], 1);  // 7.0
}

TEST_P(StatisticsOn, FirstOfEqualMagnitudesIsTheLargest) {
  Matrix<float> block(32, 20);
  for (size_t i = 0; i < block.size(); ++i) block.data()[i] = 1.0f;
  for (size_t j = 0; j < 20; ++j) block(j, j) = block(j + 3, j) = -2.0f;
  const Quantization spec = Spec("e4m3");
  BlockTally tally;
  TallyBlocksDown(block.view(), &spec, tally);

  for (size_t k = 0; k < 32; ++k) EXPECT_EQ(tally.places[k], k < 20 ? 1 : 0);
}

TEST_P(StatisticsOn, TheNextFloatAfterTheLargestElementValueIsSaturated) {
  const Quantization spec = Spec("e4m3", ScaleRule::kFloor);
  for (const float largest : {448.0f, std::nextafter(448.0f, 500.0f)}) {
    const std::vector<float> block(32, largest);
    BlockTally tally;
    TallyBlocksAlong(block, &spec, tally);

    EXPECT_EQ(tally.bytes[127], 1);
    EXPECT_EQ(tally.saturated, largest > 448.0f ? 32 : 0);
  }
}

TEST_P(StatisticsOn, RangeOfZerosIsOneAndOfNothingZero) {
  BlockTally tally;
  TallyBlocksAlong({}, nullptr, tally);
  EXPECT_EQ(tally.range, 0.0);

  TallyBlocksAlong(std::vector<float>(32, 0.0f), nullptr, tally);
  EXPECT_EQ(tally.range, 1.0);
  EXPECT_THAT(tally.places, Each(0));
  EXPECT_THAT(tally.bytes, Each(0));
}

TEST_P(StatisticsOn, ABlockThatIsNotFiniteHasTheScaleOfItsPolicy) {
  std::vector<float> block(32, 1.0f);
  block[5] = kNan;
  Quantization spec = Spec("e4m3");
  BlockTally tally;
  TallyBlocksAlong(block, &spec, tally);
  EXPECT_EQ(tally.bytes[255], 1);

  spec.non_finite = NonFinitePolicy::kTe;
  TallyBlocksAlong(block, &spec, tally);
  EXPECT_EQ(tally.bytes[127 - 8], 1);

  block[6] = kInf;
  TallyBlocksAlong(block, &spec, tally);
  EXPECT_EQ(tally.bytes[254], 1);
  EXPECT_EQ(tally.saturated, 0);
}

TEST(Statistics, ScaleOfAFiniteBlockIsThatOfItsLargestMagnitude) {
  for (const Quantization& spec : AllSpecs()) {
    for (uint64_t stream = 0; stream < 500; ++stream) {
      // Wild values in all binades, made finite.
      Matrix<float> block = Filled(1, 1 + stream % 32, Values::kWild, stream);
      float largest = 0;
      for (size_t k = 0; k < block.cols(); ++k) {
        if (!std::isfinite(block(0, k))) block(0, k) = 0.0f;
        largest = std::max(largest, std::fabs(block(0, k)));
      }

      ASSERT_EQ(formats::MxScale({block.data(), block.cols()}, spec),
                formats::MxScale({&largest, 1}, spec));
    }
  }
}

/// TransformerEngine: elements that are not zero, less codes that are not zero.
int64_t TeUnderflows(std::span<const float> block, const Quantization& spec) {
  const auto quantized =
      formats::QuantizeMx({block.data(), 1, block.size()}, spec);
  const auto sign = static_cast<uint8_t>(1u << (spec.element->bits() - 1));
  int64_t underflows = 0;
  for (size_t k = 0; k < block.size(); ++k) {
    underflows += block[k] != 0 ? 1 : 0;
    underflows -= (quantized.codes(0, k) & ~sign) != 0 ? 1 : 0;
  }
  return underflows;
}

TEST(Statistics, UnderflowsAreTransformerEnginesWhereBlocksAreFinite) {
  int64_t total = 0;
  for (const Quantization& spec : AllSpecs()) {
    for (uint64_t stream = 0; stream < 300; ++stream) {
      Matrix<float> block = Filled(1, 32, Values::kWild, stream);
      for (size_t k = 0; k < 32; ++k) {
        // Above 2^103 a dequantised element may be infinite.
        if (!(std::fabs(block(0, k)) < 0x1p103f)) block(0, k) = 0.0f;
      }
      const std::span<const float> run(block.data(), 32);
      const int64_t underflows = ErrorsOf(run, Quantized(run, spec)).underflows;

      ASSERT_EQ(underflows, TeUnderflows(run, spec));
      total += underflows;
    }
  }
  EXPECT_GT(total, 1000);
}

TEST(Statistics, ABlockThatIsNanHasNoUnderflows) {
  // TransformerEngine's formula takes its zeros for gained elements where NaN
  // has a code, and all of it for lost where not.
  std::vector<float> block(32, 1.0f);
  block[0] = kNan;
  block[1] = 0.0f;

  EXPECT_EQ(ErrorsOf(block, Quantized(block, Spec("e4m3"))).underflows, 0);
  EXPECT_EQ(TeUnderflows(block, Spec("e4m3")), -1);
  EXPECT_EQ(ErrorsOf(block, Quantized(block, Spec("e2m1"))).underflows, 0);
  EXPECT_EQ(TeUnderflows(block, Spec("e2m1")), 31);
}

}  // namespace
}  // namespace isoloss::kernels::statistics_test
