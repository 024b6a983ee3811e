// The exact sum against long integer arithmetic, and that neither order nor
// division shows.
#include "isoloss/base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "isoloss/base/rng.h"

namespace isoloss::exact_sum_test {
namespace {

constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kSubnormal = std::numeric_limits<double>::denorm_min();

ExactSum SumOf(std::span<const double> terms) {
  ExactSum sum;
  for (const double term : terms) sum.Add(term);
  return sum;
}

double ValueOf(std::vector<double> terms) { return SumOf(terms).Value(); }

std::vector<int64_t> Packed(const ExactSum& sum) {
  std::vector<int64_t> limbs;
  sum.Pack(limbs);
  return limbs;
}

ExactSum Unpacked(const std::vector<int64_t>& limbs) {
  return ExactSum::Unpack(std::span(limbs).first<ExactSum::kLimbs>());
}

/// Any finite double at all, from subnormals to the largest.
double AnyDouble(const CounterRng& rng, uint64_t index) {
  uint64_t bits = rng.Bits(index);
  if ((bits >> 52 & 0x7FF) == 0x7FF) bits ^= uint64_t{1} << 52;
  return std::bit_cast<double>(bits);
}

std::vector<double> AnyDoubles(size_t count, uint64_t stream) {
  const CounterRng rng(7, stream);
  std::vector<double> terms(count);
  for (size_t i = 0; i < count; ++i) terms[i] = AnyDouble(rng, i);
  return terms;
}

__extension__ using Int128 = __int128;

/// integer * 2^-40, |integer| < 2^100: what Int128 adds exactly.
double ToDouble(Int128 integer) {
  // Converting an integer rounds once, to nearest even.
  return std::ldexp(static_cast<double>(integer), -40);
}

TEST(ExactSum, OfNothingIsZero) {
  EXPECT_EQ(ExactSum().Value(), 0.0);
  EXPECT_FALSE(std::signbit(ExactSum().Value()));
}

TEST(ExactSum, ReturnsASingleTermUnchanged) {
  for (const double term :
       {0.0, 1.0, -1.0, kMax, -kMax, kSubnormal, -kSubnormal, 0x1p-1022,
        0x1.fffffffffffffp-1023, 0x1.23456789abcdep+77}) {
    EXPECT_EQ(ValueOf({term}), term) << term;
  }
  for (const double term : AnyDoubles(10'000, 0)) {
    ASSERT_EQ(ValueOf({term}), term) << term;
  }
}

TEST(ExactSum, EqualsIntegerArithmeticUnderCancellation) {
  const CounterRng rng(11, 0);
  for (uint64_t round = 0; round < 2000; ++round) {
    // 53-bit integers over 40 binades, each large one followed much later by
    // its opposite, so that only small ones remain.
    ExactSum sum;
    Int128 expected = 0;
    std::vector<double> opposites;
    for (uint64_t i = 0; i < 40; ++i) {
      const uint64_t bits = rng.Bits(round * 40 + i);
      const Int128 integer = static_cast<Int128>(bits >> 11) << (bits % 40);
      const double term = ToDouble(bits % 2 != 0 ? integer : -integer);
      sum.Add(term);
      if (i % 8 != 0) {
        opposites.push_back(-term);
      } else {
        expected += bits % 2 != 0 ? integer : -integer;
      }
    }
    for (const double term : opposites) sum.Add(term);

    ASSERT_EQ(sum.Value(), ToDouble(expected)) << round;
  }
}

TEST(ExactSum, RoundsTiesToEvenAndWhatIsBeyondATieAwayFromIt) {
  const double half = 0x1p-53;  // half an ulp of 1

  EXPECT_EQ(ValueOf({1.0, half}), 1.0);
  EXPECT_EQ(ValueOf({1.0, half, kSubnormal}), 1.0 + 2 * half);
  EXPECT_EQ(ValueOf({1.0, half, -kSubnormal}), 1.0);
  EXPECT_EQ(ValueOf({1.0 + 2 * half, half}), 1.0 + 4 * half);
  EXPECT_EQ(ValueOf({-1.0, -half}), -1.0);
  EXPECT_EQ(ValueOf({-1.0, -half, -kSubnormal}), -1.0 - 2 * half);
  EXPECT_EQ(ValueOf({2.0 - 2 * half, half}), 2.0);  // carries into the exponent
}

TEST(ExactSum, KeepsSubnormals) {
  EXPECT_EQ(ValueOf({kSubnormal, kSubnormal, kSubnormal}), 3 * kSubnormal);
  EXPECT_EQ(ValueOf({0x1p-1022, -kSubnormal}), 0x1.ffffffffffffep-1023);
  EXPECT_EQ(ValueOf({kMax, kSubnormal, -kMax}), kSubnormal);
}

TEST(ExactSum, IsInfiniteOnlyIfTheWholeSumIsTooLarge) {
  const double half_ulp = 0x1p970;

  EXPECT_EQ(ValueOf({kMax, kMax}), kInf);
  EXPECT_EQ(ValueOf({-kMax, -kMax}), -kInf);
  EXPECT_EQ(ValueOf({kMax, kMax, -kMax}), kMax);
  EXPECT_EQ(ValueOf({kMax, half_ulp}), kInf);
  EXPECT_EQ(ValueOf({kMax, half_ulp, -kSubnormal}), kMax);
}

TEST(ExactSum, DoesNotDependOnOrderOrDivision) {
  std::vector<double> terms = AnyDoubles(999, 1);
  const std::vector<int64_t> expected = Packed(SumOf(terms));
  const CounterRng rng(13, 0);
  for (uint64_t round = 0; round < 20; ++round) {
    for (size_t i = terms.size() - 1; i > 0; --i) {
      std::swap(terms[i], terms[rng.Bits(round * 1000 + i) % (i + 1)]);
    }
    const size_t cut = rng.Bits(round) % terms.size();
    const ExactSum first = SumOf(std::span(terms).first(cut));
    ExactSum merged = SumOf(std::span(terms).subspan(cut));
    merged.Add(first);

    ASSERT_EQ(Packed(merged), expected) << round;
    ASSERT_EQ(merged.Value(), SumOf(terms).Value()) << round;
  }
}

TEST(ExactSum, IsUnpackedFromSumsOfPackedIntegers) {
  const std::vector<double> terms = AnyDoubles(400, 2);
  std::vector<int64_t> limbs(ExactSum::kLimbs, 0);
  for (size_t part = 0; part < 8; ++part) {
    const auto packed = Packed(SumOf(std::span(terms).subspan(part * 50, 50)));
    for (size_t i = 0; i < limbs.size(); ++i) limbs[i] += packed[i];
  }

  EXPECT_EQ(Packed(Unpacked(limbs)), Packed(SumOf(terms)));
  EXPECT_EQ(Unpacked(limbs).Value(), SumOf(terms).Value());
}

TEST(ExactSum, OutlivesManyMoreMergesThanALimbHasRoomFor) {
  // Doubling 40 times: 2^40 times a term whose limbs are all ones would
  // overflow a limb of 63 bits, was it not carried.
  const double term = -0x1.fffffffffffffp+11;
  ExactSum sum = SumOf(std::vector<double>{term});
  for (int i = 0; i < 40; ++i) {
    const ExactSum copy = sum;
    sum.Add(copy);
  }

  EXPECT_EQ(sum.Value(), std::ldexp(term, 40));
}

TEST(ExactSum, SplitHasWhatRoundingTookAway) {
  const ExactSum::Parts parts =
      SumOf(std::vector<double>{1e16, 1.0, 0x1p-60}).Split();

  // 1 is half an ulp of 1e16, so 2^-60 decides; low has no room for it.
  EXPECT_EQ(parts.high, 1e16 + 2.0);
  EXPECT_EQ(parts.low, -1.0);

  const std::vector<double> terms = {0.1, 0.2, 0.3};
  const ExactSum::Parts of_terms = SumOf(terms).Split();
  EXPECT_NE(of_terms.low, 0.0);
  EXPECT_EQ(ValueOf({0.1, 0.2, 0.3, -of_terms.high, -of_terms.low}), 0.0);
}

TEST(ExactSumDeathTest, RefusesWhatIsNotFinite) {
  ExactSum sum;
  EXPECT_DEATH(sum.Add(kInf), "");
  EXPECT_DEATH(sum.Add(std::nan("")), "");
}

}  // namespace
}  // namespace isoloss::exact_sum_test
