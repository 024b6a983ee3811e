#include "isoloss/formats/bf16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace isoloss::formats::bf16_test {
namespace {

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Bf16, EveryCodeThatIsNotNanRoundTrips) {
  size_t compared = 0;
  for (uint32_t code = 0; code <= 0xFFFF; ++code) {
    const float value = DecodeBf16(static_cast<uint16_t>(code));
    if (std::isnan(value)) continue;

    const uint16_t back = EncodeBf16(value);

    ASSERT_EQ(back, code);
    ++compared;
  }
  // 2 signs x 127 NaN payloads are left out.
  EXPECT_EQ(compared, 65536u - 2 * 127);
}

TEST(Bf16, MidpointsGoToTheEvenCodeAndTheirNeighboursToTheNearest) {
  for (uint32_t code = 0; code < 0x7F80; ++code) {
    const uint32_t midpoint = code << 16 | 0x8000;
    const uint32_t even = code % 2 == 0 ? code : code + 1;

    ASSERT_EQ(EncodeBf16(FromBits(midpoint)), even);
    ASSERT_EQ(EncodeBf16(FromBits(midpoint - 1)), code);
    ASSERT_EQ(EncodeBf16(FromBits(midpoint + 1)), code + 1);
    ASSERT_EQ(EncodeBf16(FromBits(midpoint | 0x80000000)), even | 0x8000);
  }
}

TEST(Bf16, NanKeepsItsSignAndBecomesCanonical) {
  for (const uint32_t payload :
       {1u, 0x8000u, 0x3FFFFFu, 0x400000u, 0x7FFFFFu}) {
    EXPECT_EQ(EncodeBf16(FromBits(0x7F800000 | payload)), 0x7FC0);
    EXPECT_EQ(EncodeBf16(FromBits(0xFF800000 | payload)), 0xFFC0);
  }
}

TEST(Bf16, EdgesOfTheRangeAreRoundedNotFlushed) {
  EXPECT_EQ(EncodeBf16(FromBits(0x00008001)), 0x0001);
  EXPECT_EQ(EncodeBf16(FromBits(0x80000001)), 0x8000);
  EXPECT_EQ(EncodeBf16(FromBits(0x7F7F7FFF)), 0x7F7F);
  EXPECT_EQ(EncodeBf16(FromBits(0x7F7F8000)), 0x7F80);
  EXPECT_EQ(EncodeBf16(-INFINITY), 0xFF80);
}

}  // namespace
}  // namespace isoloss::formats::bf16_test
