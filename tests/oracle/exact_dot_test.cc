// Any order in which FP32 may add a dot product is explained, with as many
// flips as expected; anything else is not.
#include "isoloss/oracle/exact_dot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/oracle/comparison.h"
#include "oracle/sum_orders.h"

namespace isoloss::oracle::exact_dot_test {
namespace {

constexpr size_t kRows = 64;
constexpr size_t kDepth = 300;

float Product(float a, float b) {
  volatile float product = a * b;  // rounded by itself
  return product;
}

float WithoutFma(const Row& a, const Row& b) {
  float sum = 0.0f;
  for (size_t k = 0; k < a.size(); ++k) sum += Product(a[k], b[k]);
  return sum;
}

float SplitInFour(const Row& a, const Row& b) {
  float parts[4] = {};
  for (size_t k = 0; k < a.size(); ++k) {
    parts[k % 4] = std::fma(a[k], b[k], parts[k % 4]);
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

float Tree(const Row& a, const Row& b) {
  Row sums;
  for (size_t k = 0; k < a.size(); ++k) sums.push_back(Product(a[k], b[k]));
  for (; sums.size() > 1; sums.resize((sums.size() + 1) / 2)) {
    for (size_t i = 0; i < sums.size() / 2; ++i) {
      sums[i] = sums[2 * i] + sums[2 * i + 1];
    }
    if (sums.size() % 2 != 0) sums[sums.size() / 2] = sums.back();
  }
  return sums.front();
}

float InBf16(const Row& a, const Row& b) {
  float sum = 0.0f;
  for (size_t k = 0; k < a.size(); ++k) {
    sum = formats::RoundToBf16(std::fma(a[k], b[k], sum));
  }
  return sum;
}

float WithoutTheLastTerm(const Row& a, const Row& b) {
  return Ascending(Row(a.begin(), a.end() - 1), Row(b.begin(), b.end() - 1));
}

/// Numbers of all signs over a few binades, on the grid.
std::vector<Row> RandomRows(uint64_t stream, Grid grid) {
  const CounterRng rng(7, stream);
  std::vector<Row> rows(kRows, Row(kDepth));
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t k = 0; k < kDepth; ++k) {
      const auto bits = rng.Block(i * kDepth + k);
      const double uniform = static_cast<double>(bits[0]) * 0x1p-32 - 0.5;
      const int binade = static_cast<int>(bits[1] % 5);
      rows[i][k] = RoundTo(grid, std::ldexp(uniform, binade));
    }
  }
  return rows;
}

/// `cancelling`: the second half of a product takes back most of the first, so
/// that the noise of large partial sums meets a small result.
runlog::OracleRow Compare(Grid operands, Grid results, const Order& order,
                          bool cancelling = false) {
  std::vector<Row> a = RandomRows(1, operands);
  std::vector<Row> b = RandomRows(2, operands);
  for (size_t i = 0; cancelling && i < kRows; ++i) {
    for (size_t k = kDepth / 2; k < kDepth; ++k) {
      const float before = a[i][k - kDepth / 2];
      a[i][k] = -before * (k % 2 == 0 ? 1.0f : 1.0f + 0x1p-6f);
      a[i][k] = RoundTo(operands, static_cast<double>(a[i][k]));
      b[i][k] = b[i][k - kDepth / 2];
    }
  }
  Comparison comparison(results);
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < kRows; ++j) {
      comparison.Add(i, j,
                     RoundTo(results, static_cast<double>(order(a[i], b[j]))),
                     Dot(a[i].data(), b[j].data(), kDepth));
    }
  }
  return comparison.Row();
}

const std::vector<std::pair<const char*, Order>> kOrders = {
    {"ascending", Ascending}, {"reversed", Reversed}, {"split", SplitInFour},
    {"tree", Tree},           {"no fma", WithoutFma},
};

TEST(Dot, ExplainsEveryOrder) {
  for (const Grid operands : {Grid::kBf16, Grid::kFp32}) {
    for (const Grid results : {Grid::kBf16, Grid::kFp32}) {
      for (const auto& [name, order] : kOrders) {
        EXPECT_EQ(Compare(operands, results, order).other, 0) << name;
      }
    }
  }
}

TEST(Dot, ExpectsTheFlipsOfTheAscendingOrder) {
  // A sum of probabilities is the mean of a Poisson-binomial count, whose
  // standard deviation is at most its root.
  for (const Order& order : {Order(Ascending), Order(Reversed)}) {
    const runlog::OracleRow row =
        Compare(Grid::kBf16, Grid::kBf16, order, /*cancelling=*/true);
    EXPECT_EQ(row.other, 0);
    EXPECT_GT(row.expected_flips, 10);
    EXPECT_NEAR(static_cast<double>(row.flips), row.expected_flips,
                4 * std::sqrt(row.expected_flips) + 1);
  }
}

TEST(Dot, NoiseIsThatOfTheAscendingOrder) {
  // Each of the 4096 errors is a sum of 300 roundings; their mean square has a
  // relative standard deviation of sqrt(2 / 4096) = 2.2 %, the root half. Where
  // sums cancel to less than their largest term, that term's spacing counts:
  // then less is made than is expected.
  for (const Grid operands : {Grid::kBf16, Grid::kFp32}) {
    for (const Order& order : {Order(Ascending), Order(Reversed)}) {
      const double ratio = Compare(operands, Grid::kFp32, order).noise_ratio;
      EXPECT_LT(ratio, 1.05);
      EXPECT_GT(ratio, 0.7);
    }
  }
  EXPECT_LT(Compare(Grid::kBf16, Grid::kFp32, Tree).noise_ratio, 0.5);
}

// In this order neither the sum nor that of magnitudes loses anything: 2^24 + 2
// is an FP32 number. 2^24 + 1 is none, so another order rounds.
TEST(Dot, HasNoiseWhereOnlyAnotherOrderRounds) {
  const float values[] = {1.0f, 1.0f, -0x1p24f};

  const Estimate sum = Sum(values, 3);

  EXPECT_EQ(sum.exact, 2.0 - 0x1p24);
  // Three roundings at 2^24, whose neighbours are 2 apart.
  EXPECT_DOUBLE_EQ(sum.noise, std::sqrt(3.0 / 12.0) * 2.0);
  // With a last bit of 2 all sums have 24 bits, in any order.
  const float coarse[] = {2.0f, 2.0f, -0x1p24f};
  EXPECT_EQ(Sum(coarse, 3).noise, 0.0);
}

TEST(Dot, DoesNotExplainBf16Sums) {
  const runlog::OracleRow bf16 = Compare(Grid::kBf16, Grid::kBf16, InBf16);
  EXPECT_GT(bf16.other, bf16.elements / 2);
  EXPECT_GT(Compare(Grid::kBf16, Grid::kFp32, InBf16).noise_ratio, 1000);
}

TEST(Dot, DoesNotExplainAMissingTerm) {
  const runlog::OracleRow row =
      Compare(Grid::kBf16, Grid::kBf16, WithoutTheLastTerm);
  EXPECT_GT(row.other, row.elements / 2);
}

TEST(Dot, ExpectsTheNoiseOfOrdersThatBeginWithTheLargestTerm) {
  // Ascending, all sums but the last are small; reversed, all are large.
  Comparison comparison(Grid::kFp32);
  std::vector<Row> a = RandomRows(1, Grid::kFp32);
  const std::vector<Row> b = RandomRows(2, Grid::kFp32);
  for (size_t i = 0; i < kRows; ++i) {
    a[i].back() *= 0x1p12f;
    comparison.Add(i, 0, Reversed(a[i], b[i]),
                   Dot(a[i].data(), b[i].data(), kDepth));
  }

  // The sum of 300 roundings, each uniform within half a spacing of sums that
  // lie up to a binade above the term or below it.
  EXPECT_EQ(comparison.Row().other, 0);
  EXPECT_GT(comparison.Row().noise_ratio, 0.25);
  EXPECT_LT(comparison.Row().noise_ratio, 2.5);
}

TEST(Dot, IsExactWhereSumsAre) {
  const Row ones(100, 1.0f);
  const Row halves(100, 0.5f);

  const Estimate dot = Dot(ones.data(), halves.data(), ones.size());

  EXPECT_EQ(dot.exact, 50.0);
  EXPECT_EQ(dot.noise, 0.0);
  EXPECT_GT(dot.bound, 0.0);
}

TEST(Dot, OfNothingIsZero) {
  const Estimate dot = Dot(nullptr, nullptr, 0);
  EXPECT_EQ(dot.exact, 0.0);
  EXPECT_EQ(dot.bound, 0.0);
}

}  // namespace
}  // namespace isoloss::oracle::exact_dot_test
