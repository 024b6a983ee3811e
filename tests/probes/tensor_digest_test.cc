#include "isoloss/probes/tensor_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"

namespace isoloss::probes::tensor_digest_test {
namespace {

using model::TensorRows;

Matrix<float> Random(size_t rows, size_t cols, uint64_t seed = 1) {
  const CounterRng rng(seed, 0);
  Matrix<float> values(rows, cols);
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = static_cast<float>(rng.Uniform(i) - 0.5);
  }
  return values;
}

uint64_t Sum(MatrixView<const float> values, const TensorRows& rows = {},
             int threads = 1) {
  Executor executor(threads);
  return DigestRows(values, rows, executor);
}

TEST(TensorDigest, OfTokensAddsUpOverProcesses) {
  const Matrix<float> values = Random(70, 5);
  const uint64_t whole = Sum(values.view());

  for (const size_t cut : {1u, 32u, 69u}) {
    const uint64_t first = Sum(values.view().Rows(0, cut));
    const uint64_t rest =
        Sum(values.view().Rows(cut, 70 - cut), {.first_row = cut});

    EXPECT_EQ(first + rest, whole) << cut;
  }
}

TEST(TensorDigest, OfTokensDoesNotDependOnSequences) {
  const Matrix<float> values = Random(70, 5);
  const std::vector<size_t> ends = {30, 70};

  EXPECT_EQ(Sum(values.view(), {.segment_ends = ends}), Sum(values.view()));
}

/// Three experts with 4, 0 and 5 rows of two units each.
struct Experts {
  std::vector<size_t> begins = {0, 4, 4, 9};
  std::vector<size_t> units = {1, 4, 0, 0, 3, 5};
  Matrix<float> values = Random(9, 7);
};

TEST(TensorDigest, OfExpertsLeavesOutRowsThatFillThemUp) {
  const Experts e;
  // Units of one expert after the other, filled up to multiples of 4 rows.
  const std::vector<size_t> begins = {0, 8, 8, 16};
  const std::vector<size_t> ends = {4, 8, 0, 0, 4, 8};
  const std::vector<size_t> used = {1, 3, 0, 0, 3, 2};
  Matrix<float> padded = Random(16, 7, 2);
  const std::vector<size_t> places = {0, 4, 5, 6, 8, 9, 10, 12, 13};
  for (size_t i = 0; i < places.size(); ++i) {
    std::copy_n(e.values.Row(i), 7, padded.Row(places[i]));
  }

  EXPECT_EQ(
      Sum(padded.view(),
          {.begins = begins, .segment_ends = ends, .segment_rows = used}),
      Sum(e.values.view(), {.begins = e.begins, .segment_ends = e.units}));
}

TEST(TensorDigest, OfExpertsAddsUpOverProcessesThatHoldThem) {
  const Experts e;
  const uint64_t whole =
      Sum(e.values.view(), {.begins = e.begins, .segment_ends = e.units});
  const std::vector<size_t> one = {0, 4};
  const std::vector<size_t> one_unit = {1, 4};
  const std::vector<size_t> others = {0, 0, 5};
  const std::vector<size_t> other_units = {0, 0, 3, 5};

  const uint64_t first = Sum(e.values.view().Rows(0, 4),
                             {.begins = one, .segment_ends = one_unit});
  const uint64_t rest =
      Sum(e.values.view().Rows(4, 5),
          {.begins = others, .segment_ends = other_units, .first_group = 1});

  EXPECT_EQ(first + rest, whole);
}

TEST(TensorDigest, OfExpertsAddsUpOverCopies) {
  const Experts e;
  const uint64_t whole =
      Sum(e.values.view(), {.begins = e.begins, .segment_ends = e.units});
  Matrix<float> of_unit0(4, 7);
  Matrix<float> of_unit1(5, 7);
  const auto copy = [&](size_t from, Matrix<float>& to, size_t row) {
    std::copy_n(e.values.Row(from), 7, to.Row(row));
  };
  copy(0, of_unit0, 0);
  for (size_t i = 0; i < 3; ++i) copy(4 + i, of_unit0, 1 + i);
  for (size_t i = 0; i < 3; ++i) copy(1 + i, of_unit1, i);
  for (size_t i = 0; i < 2; ++i) copy(7 + i, of_unit1, 3 + i);
  const std::vector<size_t> begins0 = {0, 1, 1, 4};
  const std::vector<size_t> begins1 = {0, 3, 3, 5};

  const uint64_t first = Sum(of_unit0.view(), {.begins = begins0});
  const uint64_t rest =
      Sum(of_unit1.view(), {.begins = begins1, .first_segment = 1});

  EXPECT_EQ(first + rest, whole);
}

TEST(TensorDigest, DoesNotDependOnThreadsOrStride) {
  const Matrix<float> wide = Random(70, 12);
  const MatrixView<const float> window = wide.view().Cols(3, 5);
  Matrix<float> dense(70, 5);
  for (size_t i = 0; i < 70; ++i) std::copy_n(window.Row(i), 5, dense.Row(i));
  const uint64_t expected = Sum(dense.view());

  EXPECT_EQ(Sum(window), expected);
  for (const int threads : {2, 3, 7}) {
    EXPECT_EQ(Sum(dense.view(), {}, threads), expected) << threads;
  }
}

TEST(TensorDigest, SeesEveryBit) {
  Matrix<float> values = Random(3, 3);
  std::set<uint64_t> digests = {FinishDigest(Sum(values.view()))};
  for (size_t i = 0; i < values.size(); ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      const float value = values.data()[i];
      values.data()[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^
                                              (uint32_t{1} << bit));

      EXPECT_TRUE(digests.insert(FinishDigest(Sum(values.view()))).second)
          << i << ", bit " << bit;

      values.data()[i] = value;
    }
  }
}

TEST(TensorDigest, SeesRowsThatChangePlaces) {
  Matrix<float> values = Random(9, 4);
  const uint64_t before = Sum(values.view());

  std::swap_ranges(values.Row(2), values.Row(2) + 4, values.Row(7));

  EXPECT_NE(Sum(values.view()), before);
}

/// Rows 0 and 1 in the places of rows 2 and 3.
Matrix<float> HalvesSwapped(const Matrix<float>& values) {
  Matrix<float> swapped(4, values.cols());
  for (size_t row = 0; row < 4; ++row) {
    std::copy_n(values.Row((row + 2) % 4), values.cols(), swapped.Row(row));
  }
  return swapped;
}

TEST(TensorDigest, SeesRowsThatChangeTheirExpertOrUnitOnly) {
  const Matrix<float> values = Random(4, 4);
  const Matrix<float> swapped = HalvesSwapped(values);
  const std::vector<size_t> experts = {0, 2, 4};
  const std::vector<size_t> one = {0, 4};
  const std::vector<size_t> units = {2, 4};

  EXPECT_NE(Sum(values.view(), {.begins = experts}),
            Sum(swapped.view(), {.begins = experts}));
  EXPECT_NE(Sum(values.view(), {.begins = one, .segment_ends = units}),
            Sum(swapped.view(), {.begins = one, .segment_ends = units}));
  EXPECT_NE(Sum(values.view(), {.begins = experts}),
            Sum(values.view(), {.begins = one, .segment_ends = units}));
}

TEST(TensorDigest, TellsZerosApartAndNansNot) {
  Matrix<float> values(1, 1);
  const auto digest = [&](uint32_t bits) {
    values(0, 0) = std::bit_cast<float>(bits);
    return Sum(values.view());
  };

  EXPECT_NE(digest(0x80000000), digest(0));
  EXPECT_EQ(digest(0xffc00001), digest(0x7f800001));
  EXPECT_NE(digest(0x7f800000), digest(0x7f800001)) << "infinity is no NaN";
}

TEST(TensorDigest, CountsRowsOfOneHolderOnly) {
  const Matrix<float> values = Random(4, 4);

  EXPECT_EQ(Sum(values.view(), {.counts = false}), 0u);
  EXPECT_NE(FinishDigest(0), 0u);
}

}  // namespace
}  // namespace isoloss::probes::tensor_digest_test
