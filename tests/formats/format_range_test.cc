#include "isoloss/formats/format_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace isoloss::formats::format_range_test {
namespace {

using ::testing::ElementsAre;

TEST(FormatRange, OfE2m1IsEightMagnitudes) {
  // 0, 0.5, 1, 1.5, 2, 3, 4, 6.
  const FormatRange range = RangeOf(FormatByName("e2m1"));

  EXPECT_EQ(range.max, 6);
  EXPECT_EQ(range.min_normal, 1);
  EXPECT_EQ(range.min_subnormal, 0.5);
  EXPECT_EQ(range.codes, 16u);
  EXPECT_EQ(range.finite, 16u);
  EXPECT_EQ(range.values, 15u);
  EXPECT_THAT(
      range.binades,
      ElementsAre(Binade{-1, 1, 1, 0.5, 0.5}, Binade{0, 2, 2, 0.5, 0.25},
                  Binade{1, 4, 2, 1, 0.25}, Binade{2, 6, 2, 2, 0.25}));
}

TEST(FormatRange, OfE4m3LeavesTheNanOut) {
  const FormatRange range = RangeOf(FormatByName("e4m3"));

  EXPECT_EQ(range.finite, 254u);
  EXPECT_EQ(range.values, 253u);
  ASSERT_EQ(range.binades.size(), 18u);
  EXPECT_EQ(range.binades.front(), (Binade{-9, 1, 1, 0x1p-9, 0.5}));
  EXPECT_EQ(range.binades.back(), (Binade{8, 0x78, 7, 32, 0x1p-4}));
}

TEST(FormatRange, OfInt8HasNoNormalNumbersAndOneZero) {
  const FormatRange range = RangeOf(FormatByName("int8"));

  EXPECT_FALSE(range.min_normal.has_value());
  EXPECT_EQ(range.finite, 255u);
  EXPECT_EQ(range.values, 255u);
  ASSERT_EQ(range.binades.size(), 7u);
  EXPECT_EQ(range.binades.back(), (Binade{0, 64, 64, 0x1p-6, 0x1p-7}));
}

class Binades : public ::testing::TestWithParam<const Format*> {};
INSTANTIATE_TEST_SUITE_P(Formats, Binades,
                         ::testing::ValuesIn(AllFormats().begin(),
                                             AllFormats().end()),
                         [](const auto& test) {
                           return std::string(test.param->name);
                         });

TEST_P(Binades, HoldEveryPositiveValueAndBoundItsRounding) {
  const Format& format = *GetParam();
  const FormatRange range = RangeOf(format);
  uint32_t code = 1;
  for (const Binade& binade : range.binades) {
    EXPECT_EQ(binade.first_code, code);
    const double least = std::ldexp(1.0, binade.exponent);
    EXPECT_EQ(static_cast<double>(Decode(format, code)), least);
    EXPECT_EQ(binade.worst_error, binade.spacing / 2 / least);
    for (uint32_t i = 0; i < binade.values; ++i, ++code) {
      ASSERT_EQ(static_cast<double>(Decode(format, code)),
                least + i * binade.spacing);
    }
  }
  EXPECT_EQ(code, format.max_code + 1);
}

}  // namespace
}  // namespace isoloss::formats::format_range_test
