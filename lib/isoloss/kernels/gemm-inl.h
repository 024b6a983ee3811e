// The vector GEMM of one Highway target decides when it packs which parts of
// its operands, and which tile it computes next.
#if defined(ISOLOSS_KERNELS_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_GEMM_INL_H_
#undef ISOLOSS_KERNELS_GEMM_INL_H_
#else
#define ISOLOSS_KERNELS_GEMM_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/blocking.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/gemm_schedule.h"
#include "isoloss/kernels/pack-inl.h"
#include "isoloss/kernels/scalar/gemm.h"
#include "isoloss/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

/// This number of steps is computed for all tiles before the next steps, if
/// segments allow: longer columns of a matrix don't stay in L2 from tile to
/// tile.
constexpr size_t kBlockSteps = 1024;
/// With at most this number of tiles of rows, a panel of b is not worth packing
/// if it can be read in place.
constexpr size_t kInPlaceRowTiles = 6;

/// Computes one piece on one thread. Holds the scratch memory of the thread.
class GemmWorker {
 public:
  void Run(const GemmPiece& piece) {
    common_ = piece.group.common;
    problems_ = piece.group.problems;
    size_t whole = 0;
    ends_ = SegmentEnds(*problems_.front(), &whole);
    ListTiles(piece);
    const size_t open_tiles = std::bit_width(ends_.size()) + 1;
    const bool one_block = ends_.back() <= kBlockSteps || ends_.size() == 1;
    // A tile that is done within one block of steps needs its stack only during
    // that block.
    stack_.ResizeUninitialized(one_block ? 1 : rows_.size() * columns_.size(),
                               open_tiles * kTileSize);
    for (size_t first = 0; first < ends_.size();) {
      size_t last = first + 1;
      while (last < ends_.size() &&
             ends_[last] - StepOf(first) <= kBlockSteps) {
        ++last;
      }
      RunSegments(first, last);
      first = last;
    }
  }

 private:
  /// Adds segments [first, last) to the tiles' trees.
  void RunSegments(size_t first, size_t last) {
    first_segment_ = first;
    first_step_ = StepOf(first);
    block_ends_.clear();
    for (size_t segment = first; segment < last; ++segment) {
      block_ends_.push_back(ends_[segment] - first_step_);
    }
    depth_ = block_ends_.back();
    const size_t strip =
        TilesPerBlock(blocking_.strip_bytes, depth_ * kTileRows, rows_.size());
    const bool one_strip = strip == rows_.size();
    // With one strip of a, a panel of b is packed, used and forgotten.
    const size_t block =
        one_strip ? 1
                  : TilesPerBlock(blocking_.column_block_bytes,
                                  depth_ * kTileColumns, columns_.size());
    panels_.ResizeUninitialized(block, SpreadDistance(depth_ * kTileColumns));
    if (one_strip) {
      PackStrip(rows_);
      for (size_t j = 0; j < columns_.size(); ++j) {
        PackColumn(columns_[j], panels_.Row(0));
        if (j + 1 < columns_.size())
          FetchMeanwhile(columns_[j + 1], columns_[j]);
        MultiplyColumn(rows_, columns_[j]);
      }
      return;
    }
    for (size_t j = 0; j < columns_.size(); j += block) {
      const std::span<ColumnTile> columns =
          std::span(columns_).subspan(j, std::min(block, columns_.size() - j));
      for (size_t p = 0; p < columns.size(); ++p) {
        PackColumn(columns[p], panels_.Row(p));
      }
      for (size_t i = 0; i < rows_.size(); i += strip) {
        const std::span<RowTile> rows =
            std::span(rows_).subspan(i, std::min(strip, rows_.size() - i));
        PackStrip(rows);
        for (const ColumnTile& column : columns) MultiplyColumn(rows, column);
      }
    }
  }

  /// A tile of rows of c belongs to one product; its rows are also rows of that
  /// product's a.
  struct RowTile {
    size_t problem;
    size_t first;
    size_t count;
    TileRows at;
  };
  /// A tile of columns of c belongs to one product; its columns are rows of
  /// that product's b.
  struct ColumnTile {
    size_t problem;
    size_t first;
    size_t count;
    TileColumns at;
  };

  static size_t TilesPerBlock(size_t bytes, size_t tile_size, size_t tiles) {
    const size_t fit = std::max<size_t>(
        bytes / (std::max<size_t>(tile_size, 1) * sizeof(float)), 1);
    const size_t blocks = (tiles + fit - 1) / fit;
    return (tiles + blocks - 1) / blocks;
  }

  /// Returns the step at which a segment begins.
  size_t StepOf(size_t segment) const {
    return segment == 0 ? 0 : ends_[segment - 1];
  }

  /// Cuts an operand to the steps of the running block.
  Operand Steps(Operand operand) const {
    operand.values = operand.contraction == Contraction::kColumns
                         ? operand.values.Cols(first_step_, depth_)
                         : operand.values.Rows(first_step_, depth_);
    return operand;
  }

  void ListTiles(const GemmPiece& piece) {
    const bool common_left = common_ == GemmGroup::Common::kLeft;
    rows_.clear();
    columns_.clear();
    size_t row = 0;  // counted over all products
    size_t column = 0;
    for (size_t p = 0; p < problems_.size(); ++p) {
      if (p == 0 || !common_left) {
        const BalancedTiles tiles(problems_[p]->c.rows(), kTileRows);
        for (size_t i = 0; i < tiles.count(); ++i, ++row) {
          if (row < piece.row_begin || row >= piece.row_end) continue;
          rows_.push_back({p, tiles.First(i), tiles.Rows(i), {}});
        }
      }
      if (p == 0 || common_left) {
        const size_t width = problems_[p]->c.cols();
        for (size_t j = 0; j < width; j += kTileColumns, ++column) {
          if (column < piece.column_begin || column >= piece.column_end) {
            continue;
          }
          columns_.push_back({p, j, std::min(kTileColumns, width - j), {}});
        }
      }
    }
  }

  /// Makes the rows of a ready for tiles, product by product.
  void PackStrip(std::span<RowTile> strip) {
    size_t size = 0;
    ForEachProduct(strip, [&](const Operand& a, std::span<RowTile> tiles) {
      if (!ReadsInPlace(a)) size += PackedRowsSize(a, RowCount(tiles));
    });
    strip_.ResizeUninitialized(1, size);
    float* to = strip_.data();
    ForEachProduct(strip, [&](const Operand& a, std::span<RowTile> tiles) {
      const size_t first = tiles.front().first;
      const size_t count = RowCount(tiles);
      PackedRows rows = RowsInPlace(a, first);
      if (!ReadsInPlace(a)) {
        rows = PackRows(a, first, count, block_ends_, to);
        to += PackedRowsSize(a, count);
      }
      for (RowTile& tile : tiles) {
        tile.at = rows.Tile(tile.first - first, tile.count);
      }
    });
  }

  static size_t RowCount(std::span<const RowTile> tiles) {
    return tiles.back().first + tiles.back().count - tiles.front().first;
  }

  template <typename Visit>
  void ForEachProduct(std::span<RowTile> strip, const Visit& visit) {
    for (size_t begin = 0; begin < strip.size();) {
      size_t end = begin + 1;
      while (end < strip.size() && strip[end].problem == strip[begin].problem) {
        ++end;
      }
      visit(Steps(problems_[strip[begin].problem]->a),
            strip.subspan(begin, end - begin));
      begin = end;
    }
  }

  /// Makes a panel of b ready for tiles: it was packed before, is read in
  /// place, or is packed in `to`.
  void PackColumn(ColumnTile& tile, float* to) {
    const GemmProblem& problem = *problems_[tile.problem];
    if (problem.packed_b != nullptr) {  // one segment
      tile.at = TileColumns::Ahead(
          problem.packed_b->Panel(tile.first / kTileColumns), kTileColumns);
      return;
    }
    const Operand b = Steps(problem.b);
    if (b.quantization == nullptr && b.rounding == Rounding::kFp32 &&
        b.contraction == Contraction::kRows && tile.count % kLanes == 0 &&
        rows_.size() <= kInPlaceRowTiles) {
      tile.at =
          TileColumns::Ahead(b.values.data() + tile.first, b.values.stride());
      return;
    }
    PackPanel(b, tile.first, tile.count, block_ends_, to);
    tile.at = TileColumns::Ahead(to, kTileColumns);
  }

  /// Lets the tiles of a packed column prefetch the memory that the next column
  /// is packed from.
  void FetchMeanwhile(const ColumnTile& next, ColumnTile& column) const {
    const GemmProblem& problem = *problems_[next.problem];
    if (problem.packed_b != nullptr || column.at.data != panels_.Row(0)) return;
    const Operand b = Steps(problem.b);
    if (b.contraction == Contraction::kRows) {
      column.at.next = b.values.data() + next.first;
      column.at.next_distance = b.values.stride();
    } else {
      // The panel's size is fetched, which is all rows if they are close to
      // each other.
      column.at.next = b.values.Row(next.first);
      column.at.next_distance = kTileColumns;
    }
  }

  static TileOutput OutputOf(const GemmProblem& problem, const RowTile& row,
                             const ColumnTile& column) {
    TileOutput out{.data = problem.c.Row(row.first) + column.first,
                   .stride = problem.c.stride(),
                   .columns = column.count,
                   .rounding = problem.rounding};
    FetchTile(out.data, out.stride, row.count, column.count);
    if (!problem.addend.empty()) {
      out.addend = problem.addend.Row(row.first) + column.first;
      out.addend_stride = problem.addend.stride();
      FetchTile(out.addend, out.addend_stride, row.count, column.count);
    }
    return out;
  }

  /// Prefetches memory that a tile needs once its sums are done.
  static HWY_INLINE void FetchTile(const float* tile, size_t stride,
                                   size_t rows, size_t columns) {
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; j += kLanes) {
        hwy::Prefetch(tile + i * stride + j);
      }
    }
  }

  void MultiplyColumn(std::span<const RowTile> rows, const ColumnTile& column) {
    TileColumns right = column.at;
    for (const RowTile& row : rows) {
      const GemmProblem& problem =
          *problems_[common_ == GemmGroup::Common::kLeft ? column.problem
                                                         : row.problem];
      const Adjacent adjacent = AdjacentOf(problem.a);
      const TileOutput out = OutputOf(problem, row, column);
      const TileKernel kernel = KernelFor(adjacent, row.count, column.count);
      if (ends_.size() == 1) {
        kernel(row.at, right, depth_, out);
      } else {
        MultiplySegments(kernel, adjacent, row.at, right, out,
                         StackOf(row, column));
      }
      // One tile fetches memory for the next column; the later ones fetch their
      // own steps.
      right = TileColumns::Ahead(right.data, right.distance);
    }
  }

  float* StackOf(const RowTile& row, const ColumnTile& column) {
    const auto i = static_cast<size_t>(&row - rows_.data());
    const auto j = static_cast<size_t>(&column - columns_.data());
    return stack_.Row(stack_.rows() == 1 ? 0 : i * columns_.size() + j);
  }

  /// Computes a tile of several segments: their sums go up the aligned tree, as
  /// in AlignedTree, on a stack of tiles.
  void MultiplySegments(TileKernel kernel, Adjacent adjacent, TileRows rows,
                        TileColumns columns, const TileOutput& out,
                        float* stack) {
    // A tree has an open node for each one bit in its number of leaves.
    auto open = static_cast<size_t>(std::popcount(first_segment_));
    size_t begin = 0;
    for (size_t i = 0; i < block_ends_.size(); ++i) {
      const size_t leaves = first_segment_ + i + 1;
      const size_t steps = block_ends_[i] - begin;
      const bool last = leaves == ends_.size();
      const size_t folds =
          last ? open : static_cast<size_t>(std::countr_zero(leaves));
      TileOutput to =
          last ? out
               : TileOutput{.data = stack + (open - folds) * kTileSize,
                            .stride = kTileColumns,
                            .columns = kTileColumns};
      to.open = stack + open * kTileSize;
      to.folds = folds;
      if (!last && out.columns <= kLanes) to.columns = kLanes;
      kernel(rows, columns, steps, to);
      open = open - folds + 1;
      rows.data += steps * (adjacent == Adjacent::kRows ? rows.distance : 1);
      columns.data += steps * columns.distance;
      columns.next += steps * columns.next_distance;
      begin += steps;
    }
  }

  const Blocking& blocking_ = ThisMachinesBlocking();
  GemmGroup::Common common_;
  std::span<const GemmProblem* const> problems_;
  std::span<const size_t> ends_;    // of all segments
  size_t first_segment_ = 0;        // of the running block
  size_t first_step_ = 0;           // of it
  std::vector<size_t> block_ends_;  // of its segments, from its first step
  size_t depth_ = 0;                // of it
  std::vector<RowTile> rows_;
  std::vector<ColumnTile> columns_;
  Matrix<float> strip_;   // packed rows of a
  Matrix<float> panels_;  // of the block of columns
  Matrix<float> stack_;   // open nodes of the segment tree, of each tile
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_GEMM_INL_H_
