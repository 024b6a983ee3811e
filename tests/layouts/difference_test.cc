// Differences of tensors, and which mistakes of layouts they are named.
#include "isoloss/layouts/difference.h"

#include <gtest/gtest.h>

#include "isoloss/base/rng.h"
#include "isoloss/layouts/mistakes.h"

namespace isoloss::layouts::difference_test {
namespace {

/// Rows of independent numbers around 0.
Matrix<float> Random(size_t rows, size_t cols, uint64_t seed) {
  const CounterRng rng(seed, StreamId("matrix"));
  Matrix<float> matrix(rows, cols);
  for (size_t i = 0; i < matrix.size(); ++i) {
    matrix.data()[i] =
        static_cast<float>(static_cast<double>(rng.Bits(i) >> 40) / 0x1p23 - 1);
  }
  return matrix;
}

/// A changed copy: change(row, column, value).
template <typename Change>
Matrix<float> Changed(const Matrix<float>& a, const Change& change) {
  Matrix<float> b(a.rows(), a.cols());
  for (size_t i = 0; i < a.rows(); ++i) {
    for (size_t j = 0; j < a.cols(); ++j) b(i, j) = change(i, j, a(i, j));
  }
  return b;
}

const std::vector<RankCount> kTwo = {{2, "tp"}};

Mistake Named(const Matrix<float>& a, const Matrix<float>& b) {
  return NameMistake(
      {.expected = a.view(), .found = b.view(), .bound = 0.01, .counts = kTwo});
}

TEST(Difference, CountsBitsButNotTheSignOfZero) {
  Matrix<float> a(2, 2);
  a(0, 0) = 3.0f;
  Matrix<float> b = Changed(a, [](size_t, size_t, float v) { return v; });
  b(0, 1) = -0.0f;
  b(1, 1) = 4.0f;

  const Difference d = Differ(a.view(), b.view());
  EXPECT_EQ(d.elements, 4);
  EXPECT_EQ(d.different, 1);
  EXPECT_DOUBLE_EQ(d.relative, 4.0 / 3.0);
  EXPECT_EQ(Differ(a.view(), b.view(), {false, true}).different, 0);
}

TEST(Difference, OfOneWrongRowIsSeenInThatRow) {
  const Matrix<float> a = Random(1000, 8, 1);
  const Matrix<float> b =
      Changed(a, [](size_t i, size_t, float v) { return i == 7 ? -v : v; });

  const Difference d = Differ(a.view(), b.view());
  EXPECT_LT(d.relative, 0.1);
  EXPECT_DOUBLE_EQ(d.largest_row, 2.0);
}

TEST(Difference, NoiseHasNoFactorsOfShards) {
  const Matrix<float> a = Random(64, 64, 1);
  const Matrix<float> noise = Random(64, 64, 2);
  const Matrix<float> noisy = Changed(
      a, [&](size_t i, size_t j, float v) { return v + 0.01f * noise(i, j); });
  const Matrix<float> scaled = Changed(noisy, [](size_t i, size_t j, float v) {
    return v * (j < 32 ? 1.0f : (i % 2 == 0 ? 1.06f : 0.94f));
  });

  EXPECT_EQ(ShardsWithFactors(a.view(), noisy.view(), kTwo), 0U);
  EXPECT_EQ(ShardsWithFactors(a.view(), scaled.view(), kTwo), 2U);
}

TEST(Mistake, OfAShardIsToldByItsColumns) {
  const Matrix<float> a = Random(8, 16, 1);
  const Mistake doubled = Named(a, Changed(a, [](size_t, size_t j, float v) {
                                  return j < 8 ? v : 2 * v;
                                }));
  EXPECT_EQ(doubled.name, "counted_on_each_rank");
  EXPECT_EQ(doubled.where, "columns 8..15 of 16 = rank 1 of tp");

  const Mistake swapped = Named(a, Changed(a, [&](size_t i, size_t j, float) {
                                  return a(i, (j + 8) % 16);
                                }));
  EXPECT_EQ(swapped.name, "shard_order");
}

TEST(Mistake, OfRowsIsToldByTheRows) {
  const Matrix<float> a = Random(8, 16, 1);
  const Mistake lost = Named(a, Changed(a, [](size_t i, size_t, float v) {
                               return i < 6 ? v : 0.0f;
                             }));
  EXPECT_EQ(lost.name, "rows_zero");
  EXPECT_EQ(lost.where, "rows 6..7 of 8");
}

}  // namespace
}  // namespace isoloss::layouts::difference_test
