#include "isoloss/base/rng.h"

#include <gtest/gtest.h>

namespace isoloss::rng_test {
namespace {

// Known answers of Random123's Philox4x32-10 (kat_vectors).
TEST(Philox, EqualsTheKnownAnswers) {
  using Block = std::array<uint32_t, 4>;

  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, DependsOnSeedStreamAndIndexOnly) {
  const CounterRng rng(7, 3);

  EXPECT_EQ(rng.Bits(5), CounterRng(7, 3).Bits(5));
  EXPECT_NE(rng.Bits(5), rng.Bits(6));
  EXPECT_NE(rng.Bits(5), CounterRng(8, 3).Bits(5));
  EXPECT_NE(rng.Bits(5), CounterRng(7, 4).Bits(5));
}

TEST(CounterRng, UniformHasTheMomentsOfTheUniformDistribution) {
  // n independent values: the mean has standard deviation 1/sqrt(12 n), the
  // mean square 1/3 has sqrt((1/5 - 1/9) / n). Five of them: a false alarm in
  // 1.7 million; the generator is fixed, so the test either passes or not.
  constexpr int kCount = 1 << 16;
  const CounterRng rng(1, StreamId("uniform"));
  double sum = 0;
  double sum_of_squares = 0;

  for (int i = 0; i < kCount; ++i) {
    const double value = rng.Uniform(i);
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
    sum_of_squares += value * value;
  }

  EXPECT_NEAR(sum / kCount, 0.5, 5 * 0.2887 / 256);
  EXPECT_NEAR(sum_of_squares / kCount, 1.0 / 3, 5 * 0.2982 / 256);
}

TEST(CounterRng, BelowReachesEveryValueAndNoOther) {
  const CounterRng rng(1, 2);
  std::array<int, 7> seen{};

  for (uint64_t i = 0; i < 1000; ++i) ++seen.at(rng.Below(i, 7));

  for (const int count : seen) EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace isoloss::rng_test
