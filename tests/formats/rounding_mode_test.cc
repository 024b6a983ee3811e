// Every rounding against its definition, in exact arithmetic, for every
// registered format.
#include "isoloss/formats/rounding_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/registered.h"

namespace isoloss::formats::rounding_mode_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

uint32_t Rounded(const Format& format, float value, RoundingMode mode,
                 RandomBits random = {}) {
  return Encode(format, value, Overflow::kSaturate, mode, random);
}

/// Where a magnitude lies between two neighbours of a format.
struct Between {
  uint32_t code;  ///< of the lower one
  double part;    ///< of the step from there, in [0, 1)
};

/// Exact: the difference of the magnitude and the lower neighbour is one of
/// floats at most a factor of two apart, or the magnitude itself; steps are
/// powers of two.
Between Locate(const Format& format, float magnitude) {
  uint32_t below = 0;
  uint32_t above = format.max_code;
  while (above - below > 1) {
    const uint32_t middle = below + (above - below) / 2;
    (Decode(format, middle) <= magnitude ? below : above) = middle;
  }
  const double low = double{Decode(format, below)};
  const double step = double{Decode(format, above)} - low;
  return {below, (double{magnitude} - low) / step};
}

/// Magnitudes below the largest value: at, beside and between neighbours, and
/// any.
std::vector<float> Magnitudes(const Format& format) {
  std::vector<float> values;
  const uint32_t stride = format.bits() <= 10 ? 1 : 97;
  for (uint32_t code = 0; code < format.max_code; code += stride) {
    const float low = Decode(format, code);
    const float high = Decode(format, code + 1);
    const float middle = low + (high - low) / 2;
    for (const float value :
         {low, std::nextafter(low, high), std::nextafter(middle, low), middle,
          std::nextafter(middle, high), std::nextafter(high, low)}) {
      values.push_back(value);
    }
  }
  const CounterRng rng(1, StreamId("rounding"));
  for (uint64_t i = 0; i < 20000; ++i) {
    const auto value =
        std::bit_cast<float>(static_cast<uint32_t>(rng.Bits(i) & 0x7FFFFFFF));
    if (value < MaxFinite(format)) values.push_back(value);
  }
  return values;
}

class Rounding : public ::testing::TestWithParam<const Format*> {
 protected:
  const Format& format() const { return *GetParam(); }
  uint32_t Negative(uint32_t code) const {
    const uint32_t sign = 1u << (format().bits() - 1);
    if (!format().twos_complement) return code | sign;
    return code == 0 ? 0 : 2 * sign - code;
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, Rounding,
                         ::testing::ValuesIn(AllFormats().begin(),
                                             AllFormats().end()),
                         [](const auto& test) {
                           return std::string(test.param->name);
                         });

TEST_P(Rounding, GoesToTheNeighbourOfTheDefinition) {
  for (const float value : Magnitudes(format())) {
    const auto [low, part] = Locate(format(), value);
    const uint32_t high = low + 1;
    const uint32_t even = low % 2 == 0 ? low : high;
    const uint32_t nearest = part < 0.5 ? low : high;

    ASSERT_EQ(Rounded(format(), value, RoundingMode::kTowardZero), low)
        << value;
    ASSERT_EQ(Rounded(format(), value, RoundingMode::kHalfAway), nearest)
        << value;
    ASSERT_EQ(Rounded(format(), value, RoundingMode::kNearestEven),
              part == 0.5 ? even : nearest)
        << value;
  }
}

TEST_P(Rounding, IsSymmetricAndSaturates) {
  const float beyond = std::numeric_limits<float>::infinity();
  for (const auto& [name, mode] : kRoundingModeNames) {
    const RandomBits random = {5, mode == RoundingMode::kStochastic ? 3 : 0};
    for (const float value : Magnitudes(format())) {
      const uint32_t code =
          Encode(format(), value, Overflow::kSaturate, mode, random);
      ASSERT_EQ(Encode(format(), -value, Overflow::kSaturate, mode, random),
                Negative(code))
          << name << " " << value;
    }
    EXPECT_EQ(Encode(format(), beyond, Overflow::kSaturate, mode, random),
              format().max_code);
    EXPECT_EQ(Encode(format(), -beyond, Overflow::kSaturate, mode, random),
              Negative(format().max_code));
  }
}

TEST_P(Rounding, StochasticIsUnbiasedUpToItsBits) {
  // Over all 2^r random values, the mean is the value with all but r bits of
  // the step's part cut off; so as many as that part counts go away from zero.
  for (const int count : {1, 3, 6}) {
    const uint32_t values = 1u << count;
    for (const float value : Magnitudes(format())) {
      const auto [low, part] = Locate(format(), value);
      uint32_t away = 0;
      for (uint32_t random = 0; random < values; ++random) {
        const uint32_t code = Rounded(
            format(), value, RoundingMode::kStochastic, {random, count});
        ASSERT_TRUE(code == low || code == low + 1) << value;
        away += code - low;
      }

      ASSERT_EQ(away, static_cast<uint32_t>(part * values)) << value;
    }
  }
}

TEST_P(Rounding, StochasticWithSixteenBitsResolvesEachOfThem) {
  const float low = Decode(format(), 1);
  const float step = Decode(format(), 2) - low;
  for (const uint32_t part : {1u, 3u, 0x5555u, 0x8000u, 0xFFFFu}) {
    const float value = low + step * std::ldexp(static_cast<float>(part), -16);
    uint32_t away = 0;
    for (uint32_t random = 0; random < 0x10000; ++random) {
      away +=
          Rounded(format(), value, RoundingMode::kStochastic, {random, 16}) - 1;
    }

    // TF32's least step has 13 bits of FP32 below it, so that the last part is
    // the next code.
    const auto [code, kept] = Locate(format(), value);
    EXPECT_EQ(away, (code - 1) * 0x10000 +
                        static_cast<uint32_t>(std::floor(kept * 0x10000)));
  }
}

TEST(RoundingMode, HalvesOfE2m1) {
  // 2.5 lies between 2 (code 4) and 3 (code 5), 0.25 between 0 and 0.5.
  const Format& e2m1 = FormatByName("e2m1");

  EXPECT_EQ(Rounded(e2m1, 2.5f, RoundingMode::kNearestEven), 4u);
  EXPECT_EQ(Rounded(e2m1, 2.5f, RoundingMode::kHalfAway), 5u);
  EXPECT_EQ(Rounded(e2m1, 2.5f, RoundingMode::kTowardZero), 4u);
  EXPECT_EQ(Rounded(e2m1, 2.5f, RoundingMode::kStochastic, {0, 1}), 4u);
  EXPECT_EQ(Rounded(e2m1, 2.5f, RoundingMode::kStochastic, {1, 1}), 5u);
  EXPECT_EQ(Rounded(e2m1, -0.25f, RoundingMode::kNearestEven), 8u);
  EXPECT_EQ(Rounded(e2m1, -0.25f, RoundingMode::kHalfAway), 9u);
  EXPECT_EQ(Rounded(e2m1, 5.99f, RoundingMode::kTowardZero), 6u);
}

TEST(RoundingMode, OverflowIsOfTheRoundedMagnitude) {
  // As if exponents went on, 480 would follow 448 in E4M3, and 65536 57344 in
  // E5M2: what is cut off below them does not overflow.
  const auto code = [](std::string_view format, float value,
                       RoundingMode mode) {
    return Encode(FormatByName(format), value, Overflow::kNonFinite, mode);
  };

  EXPECT_EQ(code("e4m3", 479, RoundingMode::kTowardZero), 0x7Eu);
  EXPECT_EQ(code("e4m3", 480, RoundingMode::kTowardZero), 0x7Fu);
  EXPECT_EQ(code("e4m3", 464, RoundingMode::kNearestEven), 0x7Eu);
  EXPECT_EQ(code("e4m3", 464, RoundingMode::kHalfAway), 0x7Fu);
  EXPECT_EQ(code("e5m2", 65535, RoundingMode::kTowardZero), 0x7Bu);
  EXPECT_EQ(code("e5m2", 65536, RoundingMode::kTowardZero), 0x7Cu);
}

TEST(RoundingMode, AnUnknownNameListsTheTable) {
  for (const auto& [name, mode] : kRoundingModeNames) {
    EXPECT_EQ(ValueByName(kRoundingModeNames, name, "rounding"), mode);
  }
  EXPECT_THAT([] { ValueByName(kRoundingModeNames, "half_awy", "rounding"); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("`half_awy`"),
                        HasSubstr("nearest_even, half_away, toward_zero, "
                                  "stochastic"),
                        HasSubstr("`half_away`?"))));
}

}  // namespace
}  // namespace isoloss::formats::rounding_mode_test
