#include "isoloss/kernels/gemm_schedule.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"

namespace isoloss::kernels::gemm_schedule_test {
namespace {

constexpr TileShape kTile = {14, 32};

TEST(BalancedTiles, DifferByOneRowAtMost) {
  for (size_t rows = 0; rows < 200; ++rows) {
    const BalancedTiles tiles(rows, 14);
    size_t next = 0;
    for (size_t i = 0; i < tiles.count(); ++i) {
      EXPECT_EQ(tiles.First(i), next);
      EXPECT_LE(tiles.Rows(i), 14u);
      EXPECT_LE(tiles.Rows(0) - tiles.Rows(i), 1u);
      next += tiles.Rows(i);
    }
    EXPECT_EQ(next, rows);
    EXPECT_EQ(tiles.count(), (rows + 13) / 14);
  }
}

/// A tile of c: the product, the row tile in it, the column tile in it.
using Tile = std::tuple<const GemmProblem*, size_t, size_t>;

/// How often each tile is in the pieces.
void CountTiles(const GemmPiece& piece, std::map<Tile, int>& counts) {
  const auto& problems = piece.group.problems;
  size_t row_offset = 0;
  size_t column_offset = 0;
  for (const GemmProblem* problem : problems) {
    const size_t rows = (problem->c.rows() + 13) / 14;
    const size_t columns = (problem->c.cols() + 31) / 32;
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        const size_t row = row_offset + i;
        const size_t column = column_offset + j;
        if (row >= piece.row_begin && row < piece.row_end &&
            column >= piece.column_begin && column < piece.column_end) {
          ++counts[{problem, i, j}];
        }
      }
    }
    if (piece.group.common == GemmGroup::Common::kLeft) {
      column_offset += columns;
    } else {
      row_offset += rows;
    }
  }
}

/// A batch of `count` products of random extents; some share operands.
class RandomBatch {
 public:
  RandomBatch(size_t count, uint64_t seed) {
    const CounterRng rng(11, seed);
    uint64_t draw = 0;
    const auto below = [&](size_t n) { return rng.Below(draw++, n); };
    storage_.reserve(3 * count);
    for (size_t i = 0; i < count; ++i) {
      GemmProblem problem;
      const bool shares = i > 0 && below(2) == 0;
      const GemmProblem other = shares ? problems_[below(i)] : GemmProblem();
      if (shares && below(2) == 0) {
        problem.a = other.a;
        problem.b.values = New(below(300), problem.a.depth());
      } else if (shares) {
        problem.b = other.b;
        problem.a.values = New(below(300), problem.b.depth());
      } else {
        const size_t depth = below(200);
        problem.a.values = New(below(300), depth);
        problem.b.values = New(below(300), depth);
      }
      problem.c = New(problem.a.extent(), problem.b.extent());
      problems_.push_back(problem);
    }
  }

  const std::vector<GemmProblem>& problems() const { return problems_; }

 private:
  MatrixView<float> New(size_t rows, size_t cols) {
    return storage_.emplace_back(rows, cols).view();
  }

  std::vector<Matrix<float>> storage_;
  std::vector<GemmProblem> problems_;
};

TEST(GemmSchedule, CoversEveryTileOnce) {
  GemmSchedule schedule;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const RandomBatch batch(1 + seed % 9, seed);
    for (const size_t threads : {1, 2, 3, 8}) {
      schedule.Divide(batch.problems(), kTile, threads);
      std::map<Tile, int> counts;
      for (size_t t = 0; t < schedule.threads(); ++t) {
        for (const GemmPiece& piece : schedule.PiecesOf(t)) {
          CountTiles(piece, counts);
        }
      }
      size_t expected = 0;
      for (const GemmProblem& problem : batch.problems()) {
        expected +=
            (problem.c.rows() + 13) / 14 * ((problem.c.cols() + 31) / 32);
      }
      EXPECT_EQ(counts.size(), expected) << "seed " << seed;
      for (const auto& [tile, count] : counts) EXPECT_EQ(count, 1);
    }
  }
}

TEST(GemmSchedule, SharesAreEqualUpToATile) {
  // 16 products of 512 x 128 x 256: 37 x 4 tiles each, so half of all is eight
  // of them.
  std::vector<Matrix<float>> storage;
  std::vector<GemmProblem> problems;
  storage.reserve(48);
  for (int i = 0; i < 16; ++i) {
    const auto a = storage.emplace_back(512, 256).view();
    const auto b = storage.emplace_back(128, 256).view();
    const auto c = storage.emplace_back(512, 128).view();
    problems.push_back({.a = {a}, .b = {b}, .c = c});
  }
  GemmSchedule schedule;

  schedule.Divide(problems, kTile, 2);

  ASSERT_EQ(schedule.threads(), 2u);
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(schedule.PiecesOf(t).size(), 8u);
    for (const GemmPiece& piece : schedule.PiecesOf(t)) {
      EXPECT_EQ(piece.row_begin, 0u);
      EXPECT_EQ(piece.row_end, 37u);
    }
  }

  schedule.Divide(problems, kTile, 3);

  for (size_t t = 0; t < 3; ++t) {
    size_t rows = 0;
    for (const GemmPiece& piece : schedule.PiecesOf(t)) {
      rows += piece.row_end - piece.row_begin;
    }
    EXPECT_NEAR(static_cast<double>(rows), 16 * 37 / 3.0, 1.0);
  }
}

TEST(GemmSchedule, FindsCommonOperands) {
  const Matrix<float> x(100, 64), w1(40, 64), w3(48, 64), other(100, 64);
  Matrix<float> c1(100, 40), c2(100, 48), c3(100, 40);
  const std::vector<GemmProblem> problems = {
      {.a = {x.view()}, .b = {w1.view()}, .c = c1.view()},
      {.a = {other.view()}, .b = {w1.view()}, .c = c3.view()},
      {.a = {x.view()}, .b = {w3.view()}, .c = c2.view()}};
  GemmSchedule schedule;

  schedule.Divide(problems, kTile, 1);

  ASSERT_EQ(schedule.PiecesOf(0).size(), 2u);
  const GemmGroup& group = schedule.PiecesOf(0)[0].group;
  EXPECT_EQ(group.common, GemmGroup::Common::kLeft);
  ASSERT_EQ(group.problems.size(), 2u);
  EXPECT_EQ(group.problems[0], &problems[0]);
  EXPECT_EQ(group.problems[1], &problems[2]);
  EXPECT_EQ(group.row_tiles, 8u);
  EXPECT_EQ(group.column_tiles, 2u + 2u);
}

TEST(GemmSchedule, LeavesATinyBatchToOneThread) {
  const Matrix<float> a(20, 20), b(20, 20);
  Matrix<float> c(20, 20);
  const GemmProblem problem = {.a = {a.view()}, .b = {b.view()}, .c = c.view()};
  GemmSchedule schedule;

  schedule.Divide({&problem, 1}, kTile, 4);
  EXPECT_EQ(schedule.threads(), 1u);

  schedule.Divide({}, kTile, 4);
  EXPECT_EQ(schedule.threads(), 1u);
  EXPECT_TRUE(schedule.PiecesOf(0).empty());
}

}  // namespace
}  // namespace isoloss::kernels::gemm_schedule_test
