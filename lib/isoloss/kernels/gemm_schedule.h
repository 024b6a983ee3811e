// Divides a batch of products into groups that share an operand, and these
// among threads. No bit of a result depends on the division.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "isoloss/kernels/gemm.h"

namespace isoloss::kernels {

/// Register tiles of a kernel target have this extent.
struct TileShape {
  size_t rows;
  size_t columns;
};

/// Cuts rows into tiles whose heights differ by one row at most.
class BalancedTiles {
 public:
  BalancedTiles(size_t rows, size_t tile_rows)
      : count_((rows + tile_rows - 1) / tile_rows),
        height_(count_ == 0 ? 0 : rows / count_),
        taller_(count_ == 0 ? 0 : rows % count_) {}

  size_t count() const { return count_; }
  size_t First(size_t tile) const {
    return tile * height_ + std::min(tile, taller_);
  }
  size_t Rows(size_t tile) const { return height_ + (tile < taller_ ? 1 : 0); }

 private:
  size_t count_;
  size_t height_;
  size_t taller_;
};

/// A group has products with a common left side a, or a common right side b,
/// which is packed once. Tiles count the rows of c over the products one below
/// the next, or the columns side by side.
struct GemmGroup {
  enum class Common { kLeft, kRight };

  Common common;
  std::span<const GemmProblem* const> problems;
  size_t row_tiles;
  size_t column_tiles;
};

/// One thread computes this part of a group's c.
struct GemmPiece {
  GemmGroup group;
  size_t row_begin;  // tiles
  size_t row_end;
  size_t column_begin;
  size_t column_end;
};

/// Returns all of one product. `problem` is a reference to the stored address
/// of the product.
GemmPiece WholePiece(const GemmProblem* const& problem, const TileShape& tile);

/// Divides a batch. Keeps its memory from batch to batch.
class GemmSchedule {
 public:
  /// Afterwards PiecesOf(t) is the work of thread t < threads. The pieces of
  /// all threads are the whole batch, in shares of about equal work. A product
  /// is divided only at the end of a share. A batch too small to be worth it is
  /// left to thread 0. Products without an element are left out.
  void Divide(std::span<const GemmProblem> problems, const TileShape& tile,
              size_t threads);

  size_t threads() const { return thread_ends_.size(); }
  std::span<const GemmPiece> PiecesOf(size_t thread) const {
    const size_t begin = thread == 0 ? 0 : thread_ends_[thread - 1];
    return {pieces_.data() + begin, thread_ends_[thread] - begin};
  }

 private:
  void FindGroups(std::span<const GemmProblem> problems, const TileShape& tile);
  void AppendPart(const GemmGroup& group, const TileShape& tile, double begin,
                  double end);

  std::vector<const GemmProblem*> sorted_;
  std::vector<const GemmProblem*> singles_;
  std::vector<const GemmProblem*> order_;  // group by group
  std::vector<GemmGroup> groups_;
  std::vector<GemmPiece> pieces_;
  std::vector<size_t> thread_ends_;
};

}  // namespace isoloss::kernels
