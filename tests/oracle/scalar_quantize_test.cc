// The oracle's own account of quantisation has the bits of formats::Quantize.
#include "isoloss/oracle/scalar_quantize.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/oracle/scalar_cast.h"

namespace isoloss::oracle::scalar_quantize_test {
namespace {

using formats::Cell;
using formats::NonFinitePolicy;
using formats::Quantization;
using formats::ScaleFormat;
using formats::ScaleRule;
using formats::Transform;

bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

struct ScaleCase {
  ScaleFormat format;
  std::vector<ScaleRule> rules;
};

const std::vector<ScaleCase> kScales = {
    {ScaleFormat::kNone, {ScaleRule::kRceil}},
    {ScaleFormat::kE8m0,
     {ScaleRule::kFloor, ScaleRule::kCeil, ScaleRule::kEven,
      ScaleRule::kRceil}},
    {ScaleFormat::kE4m3, {ScaleRule::kTe, ScaleRule::kTorchao}},
    {ScaleFormat::kPow2,
     {ScaleRule::kTe, ScaleRule::kDeepgemm, ScaleRule::kTorchao}},
    {ScaleFormat::kFp32,
     {ScaleRule::kTe, ScaleRule::kDeepgemm, ScaleRule::kTorchao}}};

/// Every description that is not wrong, of one element format, with cells,
/// roundings and transforms of all kinds.
std::vector<Quantization> DescriptionsOf(const formats::Format& element) {
  std::vector<Quantization> result;
  const auto add = [&](const Quantization& q) {
    if (formats::WrongQuantization(q).empty()) result.push_back(q);
  };
  size_t number = 0;
  for (const ScaleCase& scale : kScales) {
    for (const ScaleRule rule : scale.rules) {
      for (const auto& [scaling_name, scaling] : formats::kScalingNames) {
        for (const auto& [name, rounding] : formats::kRoundingModeNames) {
          for (const NonFinitePolicy policy :
               {NonFinitePolicy::kBlockNan, NonFinitePolicy::kTe}) {
            // Lengths without a common divisor meet in all combinations.
            constexpr std::array<Cell, 7> kCells = {
                {{1, 32}, {1, 16}, {0, 0}, {1, 0}, {16, 16}, {3, 5}, {0, 32}}};
            Quantization q{&element, rule, policy, scale.format, scaling};
            q.cell =
                q.reads_history() ? Cell{0, 0} : kCells[number % kCells.size()];
            if (scale.format == ScaleFormat::kNone) q.cell = {};
            q.history = q.reads_history() ? 3 : 0;
            q.rounding = rounding;
            constexpr std::array<int, 3> kBits = {8, 1, 16};
            q.random_bits = q.is_stochastic() ? kBits[number % 3] : 0;
            constexpr Transform kTransforms[] = {
                Transform::kHadamard16, Transform::kHadamard16Te,
                Transform::kHadamard16Random, Transform::kNone,
                Transform::kNone};
            q.transform = kTransforms[number % std::size(kTransforms)];
            ++number;
            add(q);
          }
        }
      }
    }
  }
  return result;
}

/// Random and adversarial values. Kinds: of one binade, of many, with zeros;
/// around where scales and casts step; the ends of FP32; not finite.
Matrix<float> Values(uint64_t kind, uint64_t seed) {
  constexpr size_t kRows = 19;
  constexpr size_t kCols = 53;
  const CounterRng rng(seed, kind);
  Matrix<float> values(kRows, kCols);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = rng.Block(i);
    const auto sign = static_cast<float>(bits[0] % 2 == 0 ? 1 : -1);
    const float unit = static_cast<float>(bits[1]) * 0x1p-32f;
    float& value = values.data()[i];
    switch (kind) {
      case 0:
        value = sign * (1.0f + unit);
        break;
      case 1:
        value =
            bits[2] % 7 == 0
                ? sign * 0.0f
                : sign * std::ldexp(unit, static_cast<int>(bits[3] % 40) - 20);
        break;
      case 2: {  // 448, 57344, 28, 7.5, 6, 127/64 and 2^n, one ulp around
        constexpr std::array<float, 8> kEdges = {
            1.75f, 1.875f, 1.5f, 1.9375f, 1.0f, 1.984375f, 1.25f, 1.9921875f};
        const float edge =
            std::ldexp(kEdges[bits[1] % 8], static_cast<int>(bits[3] % 12) - 4);
        value = sign * std::bit_cast<float>(std::bit_cast<uint32_t>(edge) +
                                            bits[2] % 3 - 1);
        break;
      }
      case 3: {
        constexpr std::array<float, 6> kEnds = {
            0x1p-149f,
            0x1p-126f,
            0x1p-127f,
            0x1.8p-130f,
            std::numeric_limits<float>::max(),
            0x1.cp127f};
        // A few are large, so that most cells are tiny.
        value = sign * kEnds[bits[2] % 97 == 0 ? 4 + bits[1] % 2 : bits[1] % 4];
        break;
      }
      case 4:
        value = sign * unit;
        if (bits[2] % 61 == 0) value = sign * HUGE_VALF;
        if (bits[2] % 67 == 0) value = sign * std::nanf("");
        break;
      default:  // any bits at all
        value = std::bit_cast<float>(bits[1]);
        break;
    }
  }
  return values;
}

void ExpectSame(const Matrix<float>& values, const Quantization& q,
                const formats::TensorState& state, const std::string& what) {
  const formats::QuantizedTensor theirs =
      formats::Quantize(values.view(), q, state);
  const Matrix<float> codes = formats::CodeValues(theirs, q);
  const Matrix<float> cells = formats::CellValues(theirs, q);
  const Matrix<float> all = formats::Dequantize(theirs, q);

  const ScalarTensor ours = ScalarQuantize(values.view(), q, state);

  const Matrix<float> dequantized = ScalarDequantize(ours, ours.codes.cols());
  ASSERT_EQ(ours.codes.rows(), codes.rows()) << what;
  ASSERT_EQ(ours.codes.cols(), codes.cols()) << what;
  ASSERT_EQ(ours.scales.size(), theirs.scales.size()) << what;
  ASSERT_TRUE(SameBits(ours.tensor_scale, theirs.tensor_scale)) << what;
  for (size_t i = 0; i < ours.scales.size(); ++i) {
    ASSERT_TRUE(SameBits(ours.scales[i].decode, theirs.scales.data()[i]))
        << what << " scale " << i << ": " << ours.scales[i].decode << ", not "
        << theirs.scales.data()[i];
  }
  for (size_t row = 0; row < codes.rows(); ++row) {
    for (size_t col = 0; col < codes.cols(); ++col) {
      const std::string where =
          what + " [" + std::to_string(row) + ", " + std::to_string(col) + "]";
      ASSERT_TRUE(SameBits(ours.codes(row, col), codes(row, col)))
          << where << ": " << ours.codes(row, col) << ", not "
          << codes(row, col);
      ASSERT_TRUE(SameBits(ours.codes(row, col) * ours.ScaleAt(row, col).decode,
                           cells(row, col)))
          << where;
      ASSERT_TRUE(SameBits(dequantized(row, col), all(row, col))) << where;
    }
  }
}

class ScalarQuantizeOf
    : public ::testing::TestWithParam<const formats::Format*> {};

TEST_P(ScalarQuantizeOf, HasTheBitsOfTheDefinition) {
  const std::vector<Quantization> descriptions = DescriptionsOf(*GetParam());
  ASSERT_GT(descriptions.size(), 6);
  for (uint64_t kind = 0; kind < 6; ++kind) {
    for (size_t i = 0; i < descriptions.size(); ++i) {
      const Quantization& q = descriptions[i];
      formats::TensorState state = {
          .seed = 3, .stream = 7 + i, .transform_key = 0x9E3779B97F4A7C15 + i};
      if (i % 3 != 0) state.history = std::ldexp(1.3f, static_cast<int>(i % 9));
      ExpectSame(
          Values(kind, i), q, state,
          formats::QuantizationName(q) + " of kind " + std::to_string(kind));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScalarQuantizeOf,
                         ::testing::ValuesIn(formats::AllFormats().begin(),
                                             formats::AllFormats().end()),
                         [](const auto& format) {
                           return std::string(format.param->name);
                         });

TEST(ScalarQuantize, TakesNothingForATensor) {
  const Matrix<float> none(0, 32);
  const ScalarTensor tensor =
      ScalarQuantize(none.view(), {&formats::FormatByName("e4m3")});
  EXPECT_EQ(tensor.codes.size(), 0);
  EXPECT_TRUE(tensor.scales.empty());
}

TEST(NeedsState, IsWhatTheDescriptionSays) {
  for (const formats::Format* element : formats::AllFormats()) {
    for (const Quantization& q : DescriptionsOf(*element)) {
      EXPECT_EQ(NeedsState(q), q.needs_state()) << formats::QuantizationName(q);
    }
  }
}

TEST(LargestOf, IsThatOfTheFormat) {
  for (const formats::Format* format : formats::AllFormats()) {
    EXPECT_EQ(LargestOf(*format),
              static_cast<double>(formats::MaxFinite(*format)))
        << format->name;
  }
}

}  // namespace
}  // namespace isoloss::oracle::scalar_quantize_test
