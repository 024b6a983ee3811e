// What every registered format must satisfy: a new line in formats.def is
// tested without new code.
#include "isoloss/formats/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/formats/bf16.h"

namespace isoloss::formats {
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
  uint8_t sign_bit() const {
    return static_cast<uint8_t>(1u << (format().bits() - 1));
  }
};

TEST_P(FormatConformance, DescriptionIsCompleteAndConsistent) {
  const Format& f = format();

  ASSERT_LE(f.bits(), 8);
  EXPECT_EQ(f.name, GetParam());
  EXPECT_FALSE(f.source.empty());
  EXPECT_EQ(std::ilogb(MaxFinite(f)), f.emax);
  EXPECT_EQ(std::bit_cast<uint32_t>(MaxFinite(f)) & 0x7FFFFF,
            f.max_mantissa_field());
  // The exponent field of 1.0 is the bias.
  EXPECT_EQ(Decode(f, static_cast<uint8_t>(f.bias << f.mantissa_bits)), 1.0f);
  if (!f.has_nan()) {
    EXPECT_EQ(f.max_code, sign_bit() - 1);
  }
}

TEST_P(FormatConformance, EveryNumberRoundTripsAndMirrorsItsNegative) {
  const Format& f = format();
  for (const Overflow overflow : kBothOverflows) {
    for (uint8_t code = 0; code <= f.max_code; ++code) {
      const float value = Decode(f, code);
      const auto negative = static_cast<uint8_t>(code | sign_bit());

      EXPECT_EQ(Encode(f, value, overflow), code);
      EXPECT_EQ(Encode(f, -value, overflow), negative);
      EXPECT_EQ(std::bit_cast<uint32_t>(Decode(f, negative)),
                std::bit_cast<uint32_t>(-value));
    }
  }
}

TEST_P(FormatConformance, ValuesGrowWithTheCode) {
  const Format& f = format();
  EXPECT_EQ(Decode(f, 0), 0.0f);
  for (uint8_t code = 0; code < f.max_code; ++code) {
    EXPECT_LT(Decode(f, code), Decode(f, static_cast<uint8_t>(code + 1)));
  }
}

TEST_P(FormatConformance, MidpointsGoToEvenAndTheirNeighboursToTheNearest) {
  const Format& f = format();
  for (const Overflow overflow : kBothOverflows) {
    for (int code = 0; code < f.max_code; ++code) {
      const float low = Decode(f, static_cast<uint8_t>(code));
      const float high = Decode(f, static_cast<uint8_t>(code + 1));
      const float midpoint = low + (high - low) / 2;

      EXPECT_EQ(Encode(f, midpoint, overflow), code + code % 2);
      EXPECT_EQ(Encode(f, std::nextafter(midpoint, low), overflow), code);
      EXPECT_EQ(Encode(f, std::nextafter(midpoint, high), overflow), code + 1);
    }
  }
}

TEST_P(FormatConformance, OverflowStartsHalfAStepAboveTheLargestValue) {
  // The largest value and the one that would follow it, were there a code:
  // the tie goes to whichever of the two codes is even.
  const Format& f = format();
  const float largest = MaxFinite(f);
  const float step = std::ldexp(1.0f, f.emax - f.mantissa_bits);
  const float edge = largest + step / 2;
  const float tie = f.max_code % 2 == 0 ? std::nextafter(edge, 2 * edge) : edge;
  const float last_kept = std::nextafter(tie, 0.0f);
  const float infinity = std::numeric_limits<float>::infinity();
  const int beyond = f.has_infinity ? f.max_code + 1
                     : f.has_nan()  ? f.nan_code
                                    : f.max_code;

  EXPECT_EQ(Encode(f, last_kept, Overflow::kNonFinite), f.max_code);
  for (const float value : {tie, std::numeric_limits<float>::max(), infinity}) {
    EXPECT_EQ(Encode(f, value, Overflow::kNonFinite), beyond);
    EXPECT_EQ(Encode(f, -value, Overflow::kNonFinite), beyond | sign_bit());
    EXPECT_EQ(Encode(f, value, Overflow::kSaturate), f.max_code);
    EXPECT_EQ(Encode(f, -value, Overflow::kSaturate), f.max_code | sign_bit());
  }
}

TEST_P(FormatConformance, NanIsCanonicalBothWays) {
  const Format& f = format();
  const uint8_t negative =
      f.has_nan() ? static_cast<uint8_t>(f.nan_code | sign_bit()) : 0;
  for (const Overflow overflow : kBothOverflows) {
    for (const uint32_t payload : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu}) {
      EXPECT_EQ(Encode(f, std::bit_cast<float>(payload), overflow), f.nan_code);
      EXPECT_EQ(Encode(f, std::bit_cast<float>(payload | 0x80000000), overflow),
                negative);
    }
  }
  const int first_nan = f.max_code + (f.has_infinity ? 2 : 1);
  for (int code = first_nan; code < sign_bit(); ++code) {
    EXPECT_EQ(std::bit_cast<uint32_t>(Decode(f, static_cast<uint8_t>(code))),
              0x7FC00000u);
    EXPECT_EQ(std::bit_cast<uint32_t>(
                  Decode(f, static_cast<uint8_t>(code | sign_bit()))),
              0x7FC00000u);
  }
}

/// The nearest code by trying all of them in double, ties to the even code.
uint8_t NearestBySearch(const Format& format, double magnitude) {
  int nearest = 0;
  for (int code = 1; code <= format.max_code; ++code) {
    const double value =
        static_cast<double>(Decode(format, static_cast<uint8_t>(code)));
    const double best =
        static_cast<double>(Decode(format, static_cast<uint8_t>(nearest)));
    const double gain =
        std::fabs(best - magnitude) - std::fabs(value - magnitude);
    if (gain > 0 || (gain == 0 && code % 2 == 0)) nearest = code;
  }
  return static_cast<uint8_t>(nearest);
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
    const uint8_t expected = NearestBySearch(f, within);

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

TEST(FormatTable, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT([] { FormatByName("e9m9"); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("`e9m9`"), HasSubstr("e4m3, e5m2"))));
}

TEST(FormatDeathTest, CodeWiderThanTheFormatStopsTheProgram) {
  EXPECT_DEATH(Decode(FormatByName("e2m1"), 0x10), "assertion");
}

}  // namespace
}  // namespace isoloss::formats
