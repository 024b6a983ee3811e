// The kernel that multiplies prepared operands as kernels/gemm.h defines it:
// pieces of segments in ascending k, and segments up the aligned tree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/device/gemm_products.h"
#include "isoloss/device/gemm_tiles.h"
#include "isoloss/device/kernel.h"
#include "isoloss/device/quads.h"
#include "isoloss/device/table.h"

namespace isoloss::device {

/// Returns a product's task of that number. Neighbours are in a band of tiles,
/// so that blocks that run at once read the same operands.
template <typename Shape>
constexpr TileTask TaskOf(const Product& product, uint32_t number) {
  constexpr uint32_t kBand = 8;
  const auto rows = static_cast<uint32_t>(product.result.c.rows());
  const auto cols = static_cast<uint32_t>(product.result.c.cols());
  const uint32_t down = (rows + Shape::kRows - 1) / Shape::kRows;
  const uint32_t along = (cols + Shape::kCols - 1) / Shape::kCols;
  const uint32_t group = number / (down * along);
  const uint32_t tile = number % (down * along);
  const uint32_t top = tile / (kBand * along) * kBand;
  const uint32_t height = Clipped(down - top, kBand);
  const uint32_t in_band = tile - top * along;
  const uint32_t row = (top + in_band % height) * Shape::kRows;
  const uint32_t col = in_band / height * Shape::kCols;
  return {row, col, Clipped(rows - row, Shape::kRows),
          Clipped(cols - col, Shape::kCols), group};
}

/// Computes tiles of products. A tile sums the steps of a piece. kPieces:
/// segments may have several pieces or factors.
template <typename Tile, bool kPieces>
struct MultiplyTiles : Tile {
  using Tile::ForEachSum;
  using Tile::kThreadCols;
  using Tile::kThreadRows;
  using Tile::kThreads;
  using typename Tile::Shape;
  using typename Tile::Sums;
  static constexpr uint32_t kBlocksOfProcessor = kPieces ? 1 : Shape::kBlocks;

  Table<Product, &Product::tasks_end> products;

  size_t blocks() const { return products.total; }

  template <typename Block>
  constexpr void operator()(Block& block) const {
    const auto [entry, found] = products.Find(block.index());
    const Product& product = *entry;
    const auto number = static_cast<uint32_t>(found);
    const TileTask task = TaskOf<Shape>(product, number);
    const auto group = static_cast<uint32_t>(product.group);
    const auto segments = static_cast<uint32_t>(product.segment_count);
    const uint32_t first = task.group * group;
    const uint32_t count = Clipped(segments - first, group);
    typename Tile::template Flow<Block> flow;
    Tile::Begin(block, product, task, product.segments[first].begin,
                product.segments[first + count - 1].end, flow);
    typename Block::template PerThread<Sums> sums;
    uint32_t aside = 0;
    for (uint32_t i = 0; i < count; ++i) {
      SumSegment(block, product, task, product.segments[first + i], flow, sums);
      aside = Fold(block, product, number, i, i + 1 == count, aside, sums);
    }
    block.Each([&product, &task, &sums](size_t thread) {
      Write(product, task, static_cast<uint32_t>(thread), sums[thread]);
    });
  }

 private:
  template <typename Block, typename PerThread>
  static constexpr void SumSegment(Block& block, const Product& product,
                                   const TileTask& task, const Segment& segment,
                                   typename Tile::template Flow<Block>& flow,
                                   PerThread& sums) {
    if constexpr (!kPieces) {
      Tile::SumSteps(block, product, task, segment.begin, segment.end, flow,
                     sums);
      return;
    }
    typename Block::template PerThread<Sums> piece_sums;
    block.Each([&sums](size_t thread) { sums[thread] = {}; });
    uint32_t piece = segment.first_piece;
    uint32_t end = segment.begin;
    for (uint32_t begin = segment.begin; begin < segment.end; begin = end) {
      end = begin + Clipped(product.StepsOfPiece(), segment.end - begin);
      Tile::SumSteps(block, product, task, begin, end, flow, piece_sums);
      const bool is_first = begin == segment.begin;
      block.Each([&product, &task, &piece_sums, &sums, piece,
                  is_first](size_t thread) {
        AddPiece(product, task, static_cast<uint32_t>(thread), piece, is_first,
                 piece_sums[thread], sums[thread]);
      });
      ++piece;
    }
  }

  static constexpr void AddPiece(const Product& product, const TileTask& task,
                                 uint32_t thread, uint32_t piece, bool is_first,
                                 const Sums& piece_sums, Sums& sums) {
    float of_b[kThreadCols];
    ISOLOSS_UNROLL
    for (uint32_t j = 0; j < kThreadCols; ++j) {
      const uint32_t col = Shape::ColOf(thread, j);
      of_b[j] = col < task.cols ? product.b.Factor(task.col + col, piece) : 1;
    }
    ISOLOSS_UNROLL
    for (uint32_t i = 0; i < kThreadRows; ++i) {
      const uint32_t row = Shape::RowOf(thread, i);
      const float of_a =
          row < task.rows ? product.a.Factor(task.row + row, piece) : 1;
      ISOLOSS_UNROLL
      for (uint32_t j = 0; j < kThreadCols; ++j) {
        sums.of[i][j] = product.adder.Add(is_first, sums.of[i][j],
                                          piece_sums.of[i][j], of_a * of_b[j]);
      }
    }
  }

  /// Adds segment i of a task to those before as kernels::AlignedTree does.
  /// Subtrees that are not closed yet lie in the product's stack, `aside` of
  /// them; returns their new number. After the last segment `sums` are those of
  /// the task.
  template <typename Block, typename PerThread>
  static constexpr uint32_t Fold(Block& block, const Product& product,
                                 uint32_t task, uint32_t i, bool is_last,
                                 uint32_t aside, PerThread& sums) {
    uint32_t closed = 0;
    for (uint32_t n = i + 1; n % 2 == 0; n /= 2) ++closed;
    if (is_last) closed = aside;
    if (is_last && closed == 0) return 0;
    block.Each([&product, &sums, task, aside, closed, is_last](size_t thread) {
      constexpr size_t kElements = Shape::kRows * Shape::kCols;
      float* const stack =
          product.stack + task * product.stack_depth * kElements + thread;
      const auto at = [stack](uint32_t level, uint32_t row, uint32_t col) {
        return stack + level * kElements + (row * kThreadCols + col) * kThreads;
      };
      auto& of = sums[thread].of;
      for (uint32_t level = aside; level > aside - closed; --level) {
        ForEachSum([&](uint32_t row, uint32_t col) {
          of[row][col] = *at(level - 1, row, col) + of[row][col];
        });
      }
      if (is_last) return;
      ForEachSum([&](uint32_t row, uint32_t col) {
        *at(aside - closed, row, col) = of[row][col];
      });
    });
    return aside - closed + 1;
  }

  static constexpr void Write(const Product& product, const TileTask& task,
                              uint32_t thread, Sums& sums) {
    if constexpr (Tile::kIsSoonSummed) {
      if (product.subtrees == nullptr && product.result.has_quads &&
          product.result.addend.empty() && task.rows == Shape::kRows &&
          task.cols == Shape::kCols) {
        WriteWhole(product.result, task, thread, sums);
        return;
      }
    }
    // Copies: writing to the result might change the product for all that a
    // compiler knows.
    const Result result = product.result;
    const size_t cols = result.c.cols();
    const bool is_subtree = product.subtrees != nullptr;
    float* const c =
        is_subtree ? product.subtrees + task.group * result.c.rows() * cols
                   : result.c.data();
    const size_t stride = is_subtree ? cols : result.c.stride();
    const bool has_quads = is_subtree ? cols % kQuad == 0 : result.has_quads;
    constexpr uint32_t kPart = Shape::kNeighbours;
    ISOLOSS_UNROLL
    for (uint32_t i = 0; i < kThreadRows; ++i) {
      const uint32_t row = task.row + Shape::RowOf(thread, i);
      if (Shape::RowOf(thread, i) >= task.rows) return;
      ISOLOSS_UNROLL
      for (uint32_t j = 0; j < kThreadCols; j += kPart) {
        const uint32_t col = task.col + Shape::ColOf(thread, j);
        const uint32_t end = task.col + task.cols;
        const uint32_t count = col < end ? Clipped(end - col, kPart) : 0;
        float part[kPart];
        ISOLOSS_UNROLL
        for (uint32_t k = 0; k < kPart; ++k) part[k] = sums.of[i][j + k];
        if (!is_subtree) result.Finish(row, col, count, part);
        float* const to = c + row * stride + col;
        if (has_quads && count == kPart) {
          StorePart(part, to);
          continue;
        }
        ISOLOSS_UNROLL
        for (uint32_t k = 0; k < kPart; ++k) {
          if (k < count) to[k] = part[k];
        }
      }
    }
  }

  /// Writes a tile that lies in the result, without an addend, and has quads.
  static constexpr void WriteWhole(const Result& result, const TileTask& task,
                                   uint32_t thread, Sums& sums) {
    ISOLOSS_UNROLL
    for (auto& row : sums.of) RoundAll(result.rounding, row);
    constexpr uint32_t kPart = Shape::kNeighbours;
    const size_t stride = result.c.stride();
    float* const to = result.c.data() +
                      (task.row + Shape::RowOf(thread, 0)) * stride + task.col +
                      Shape::ColOf(thread, 0);
    ISOLOSS_UNROLL
    for (uint32_t i = 0; i < kThreadRows; ++i) {
      ISOLOSS_UNROLL
      for (uint32_t j = 0; j < kThreadCols; j += kPart) {
        float part[kPart];
        ISOLOSS_UNROLL
        for (uint32_t k = 0; k < kPart; ++k) part[k] = sums.of[i][j + k];
        StorePart(part, to + Shape::RowOf(0, i) * stride + Shape::ColOf(0, j));
      }
    }
  }
};

}  // namespace isoloss::device
