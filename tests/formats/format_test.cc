// What every registered format must satisfy: a new line in formats.def is
// tested without new code.
#include "isoloss/formats/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"

namespace isoloss::formats::format_test {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Overflow kBothOverflows[] = {Overflow::kSaturate,
                                       Overflow::kNonFinite};

std::vector<std::string> RegisteredNames() {
  return {
#define ISOLOSS_FORMAT(name) #name,
#include "isoloss/formats/formats.def"
#undef ISOLOSS_FORMAT
  };
}

class FormatConformance : public ::testing::TestWithParam<std::string> {
 protected:
  const Format& format() const { return FormatByName(GetParam()); }
  uint32_t sign_bit() const { return 1u << (format().bits() - 1); }
  /// The code of the value that a code has, negated.
  uint32_t Negative(uint32_t code) const {
    if (!format().twos_complement) return code | sign_bit();
    return code == 0 ? 0 : 2 * sign_bit() - code;
  }
};

TEST_P(FormatConformance, DescriptionIsCompleteAndConsistent) {
  const Format& f = format();

  ASSERT_LE(f.bits(), 19);
  EXPECT_EQ(f.name, GetParam());
  EXPECT_FALSE(f.source.empty());
  EXPECT_EQ(MaxFinite(f), Decode(f, f.max_code));
  EXPECT_EQ(std::ilogb(MaxFinite(f)), f.emax);
  EXPECT_EQ(std::bit_cast<uint32_t>(MaxFinite(f)) & 0x7FFFFF,
            f.max_mantissa_field());
  // The exponent field of 1.0 is the bias; without one, 1.0 is the power of two
  // that the largest values begin with.
  const uint32_t one = f.exponent_bits == 0
                           ? 1u << (f.fraction_bits() - f.emax)
                           : static_cast<uint32_t>(f.bias) << f.mantissa_bits;
  EXPECT_EQ(Decode(f, one), 1.0f);
  if (!f.has_nan()) {
    EXPECT_EQ(f.max_code, sign_bit() - 1);
  }
}

TEST_P(FormatConformance, EveryNumberRoundTripsAndMirrorsItsNegative) {
  const Format& f = format();
  for (const Overflow overflow : kBothOverflows) {
    for (uint32_t code = 0; code <= f.max_code; ++code) {
      const float value = Decode(f, code);
      const uint32_t negative = Negative(code);

      ASSERT_EQ(Encode(f, value, overflow), code);
      ASSERT_EQ(Encode(f, -value, overflow), negative);
      // Of two's complements, zero is its own negative.
      if (negative == code) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(Decode(f, negative)),
                std::bit_cast<uint32_t>(-value));
    }
  }
}

TEST_P(FormatConformance, ValuesGrowWithTheCode) {
  const Format& f = format();
  EXPECT_EQ(Decode(f, 0), 0.0f);
  for (uint32_t code = 0; code < f.max_code; ++code) {
    ASSERT_LT(Decode(f, code), Decode(f, code + 1));
  }
}

TEST_P(FormatConformance, MidpointsGoToEvenAndTheirNeighboursToTheNearest) {
  const Format& f = format();
  for (const Overflow overflow : kBothOverflows) {
    for (uint32_t code = 0; code < f.max_code; ++code) {
      const float low = Decode(f, code);
      const float high = Decode(f, code + 1);
      const float midpoint = low + (high - low) / 2;

      ASSERT_EQ(Encode(f, midpoint, overflow), code + code % 2);
      ASSERT_EQ(Encode(f, std::nextafter(midpoint, low), overflow), code);
      ASSERT_EQ(Encode(f, std::nextafter(midpoint, high), overflow), code + 1);
    }
  }
}

TEST_P(FormatConformance, OverflowStartsHalfAStepAboveTheLargestValue) {
  // The largest value and the one that would follow it, were there a code:
  // the tie goes to whichever of the two codes is even.
  const Format& f = format();
  const float largest = MaxFinite(f);
  const float step = std::ldexp(1.0f, f.emax - f.fraction_bits());
  const float edge = largest + step / 2;
  const float infinity = std::numeric_limits<float>::infinity();
  const float tie = f.max_code % 2 == 0 ? std::nextafter(edge, infinity) : edge;
  const float last_kept = std::nextafter(tie, 0.0f);
  const uint32_t beyond = f.has_infinity ? f.max_code + 1
                          : f.has_nan()  ? f.nan_code
                                         : f.max_code;

  EXPECT_EQ(Encode(f, last_kept, Overflow::kNonFinite), f.max_code);
  for (const float value : {tie, std::numeric_limits<float>::max(), infinity}) {
    EXPECT_EQ(Encode(f, value, Overflow::kNonFinite), beyond);
    EXPECT_EQ(Encode(f, -value, Overflow::kNonFinite), Negative(beyond));
    EXPECT_EQ(Encode(f, value, Overflow::kSaturate), f.max_code);
    EXPECT_EQ(Encode(f, -value, Overflow::kSaturate), Negative(f.max_code));
  }
}

TEST_P(FormatConformance, NanIsCanonicalBothWays) {
  const Format& f = format();
  const uint32_t negative = f.has_nan() ? f.nan_code | sign_bit() : 0;
  for (const Overflow overflow : kBothOverflows) {
    for (const uint32_t payload : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu}) {
      EXPECT_EQ(Encode(f, std::bit_cast<float>(payload), overflow), f.nan_code);
      EXPECT_EQ(Encode(f, std::bit_cast<float>(payload | 0x80000000), overflow),
                negative);
    }
  }
  const uint32_t first_nan = f.max_code + (f.has_infinity ? 2 : 1);
  for (uint32_t code = first_nan; code < sign_bit(); ++code) {
    ASSERT_EQ(std::bit_cast<uint32_t>(Decode(f, code)), 0x7FC00000u);
    ASSERT_EQ(std::bit_cast<uint32_t>(Decode(f, code | sign_bit())),
              0x7FC00000u);
  }
}

/// The nearest code by distances in double, ties to the even code: the best of
/// the last one whose value is not above the magnitude and the next one.
uint32_t NearestBySearch(const Format& format, double magnitude) {
  const auto value = [&](uint32_t code) {
    return static_cast<double>(Decode(format, code));
  };
  uint32_t below = 0;
  uint32_t above = format.max_code;
  while (above - below > 1) {
    const uint32_t middle = below + (above - below) / 2;
    (value(middle) <= magnitude ? below : above) = middle;
  }
  const double gain =
      std::fabs(value(below) - magnitude) - std::fabs(value(above) - magnitude);
  return gain > 0 || (gain == 0 && above % 2 == 0) ? above : below;
}

TEST_P(FormatConformance, EveryBf16ValueGoesToTheCodeThatASearchFinds) {
  // A magnitude beyond twice the largest value is as far from every code but
  // the last as twice the largest value; cutting it there keeps all differences
  // that decide exact in double.
  const Format& f = format();
  for (uint32_t bits = 0; bits <= 0x7F80; ++bits) {
    const float value = DecodeBf16(static_cast<uint16_t>(bits));
    const double within = std::min(static_cast<double>(value),
                                   2.0 * static_cast<double>(MaxFinite(f)));
    const uint32_t expected = NearestBySearch(f, within);

    ASSERT_EQ(Encode(f, value, Overflow::kSaturate), expected) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Registered, FormatConformance,
                         ::testing::ValuesIn(RegisteredNames()),
                         [](const auto& test) { return test.param; });

TEST(FormatTable, HoldsTheRegisteredFormatsInOrder) {
  std::vector<std::string> names;
  for (const Format* format : AllFormats()) names.emplace_back(format->name);

  EXPECT_THAT(names, ElementsAreArray(RegisteredNames()));
}

/// docs/numerics.md, section 1.
struct Range {
  const char* name;
  float max;
  float min_normal;  ///< 0: none
  float min_subnormal;
};

TEST(FormatTable, RangesAreThoseOfTheStandards) {
  const Range ranges[] = {{"e4m3", 448, 0x1p-6f, 0x1p-9f},
                          {"e5m2", 57344, 0x1p-14f, 0x1p-16f},
                          {"e3m2", 28, 0x1p-2f, 0x1p-4f},
                          {"e2m3", 7.5f, 1, 0x1p-3f},
                          {"e2m1", 6, 1, 0.5f},
                          {"int8", 127.0f / 64, 0, 0x1p-6f},
                          {"fp16", 65504, 0x1p-14f, 0x1p-24f},
                          {"bf16", 0x1.FEp127f, 0x1p-126f, 0x1p-133f},
                          {"tf32", 0x1.FFCp127f, 0x1p-126f, 0x1p-136f}};
  ASSERT_EQ(std::size(ranges), AllFormats().size());
  for (const Range& range : ranges) {
    SCOPED_TRACE(range.name);
    const Format& f = FormatByName(range.name);

    EXPECT_EQ(MaxFinite(f), range.max);
    EXPECT_EQ(Decode(f, 1), range.min_subnormal);
    if (f.exponent_bits == 0) continue;
    EXPECT_EQ(Decode(f, 1u << f.mantissa_bits), range.min_normal);
  }
}

TEST(FormatTable, LowestCodeOfInt8IsMinusTwoAndNoValueGetsIt) {
  const Format& f = FormatByName("int8");

  EXPECT_EQ(Decode(f, 0x80), -2.0f);
  EXPECT_EQ(Encode(f, -2.0f, Overflow::kSaturate), 0x81u);
  EXPECT_EQ(Encode(f, -0.0f, Overflow::kSaturate), 0u);
}

TEST(FormatTable, Bf16IsTheCastOfBf16H) {
  const Format& f = FormatByName("bf16");
  const CounterRng rng(3, StreamId("bf16 twice"));
  for (uint64_t i = 0; i < 100000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(rng.Bits(i)));

    ASSERT_EQ(Encode(f, value, Overflow::kNonFinite), EncodeBf16(value));
  }
}

TEST(FormatTable, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT([] { FormatByName("e9m9"); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("`e9m9`"), HasSubstr("e4m3, e5m2"))));
}

TEST(FormatDeathTest, CodeWiderThanTheFormatStopsTheProgram) {
  EXPECT_DEATH(Decode(FormatByName("e2m1"), 0x10), "assertion");
  EXPECT_DEATH(Decode(FormatByName("tf32"), 0x80000), "assertion");
}

}  // namespace
}  // namespace isoloss::formats::format_test
