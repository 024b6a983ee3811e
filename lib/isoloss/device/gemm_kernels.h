// The kernel that multiplies prepared operands as kernels/gemm.h defines it:
// each element of a result is one chain of fused multiply-adds in ascending k.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "isoloss/device/gemm_products.h"
#include "isoloss/device/kernel.h"
#include "isoloss/device/table.h"

namespace isoloss::device {

/// So many neighbours in memory are copied at once.
inline constexpr uint32_t kQuad = 4;
/// Blocks multiply slabs of this many steps.
inline constexpr uint32_t kSlabSteps = 16;

/// A block's tile of a result. Each warp has kWarpRows x kWarpCols of it, and
/// of these each thread has quads that are 4 rows and 8 columns of quads apart.
template <uint32_t kRows_, uint32_t kCols_, uint32_t kRowQuads,
          uint32_t kColQuads>
struct TileShape {
  static constexpr uint32_t kRows = kRows_;
  static constexpr uint32_t kCols = kCols_;
  static constexpr uint32_t kThreadRows = kRowQuads * kQuad;
  static constexpr uint32_t kThreadCols = kColQuads * kQuad;
  static constexpr uint32_t kLanesDown = 4;
  static constexpr uint32_t kLanesAlong = 8;
  static constexpr uint32_t kWarp = kLanesDown * kLanesAlong;
  static constexpr uint32_t kWarpRows = kLanesDown * kThreadRows;
  static constexpr uint32_t kWarpCols = kLanesAlong * kThreadCols;
  static constexpr uint32_t kWarpsAlong = kCols / kWarpCols;
  static constexpr uint32_t kThreads =
      kWarp * (kRows / kWarpRows) * kWarpsAlong;

  static constexpr uint32_t RowOf(uint32_t thread, uint32_t i) {
    return thread / kWarp / kWarpsAlong * kWarpRows +
           i / kQuad * (kLanesDown * kQuad) +
           thread % kWarp / kLanesAlong * kQuad + i % kQuad;
  }
  static constexpr uint32_t ColOf(uint32_t thread, uint32_t j) {
    return thread / kWarp % kWarpsAlong * kWarpCols +
           j / kQuad * (kLanesAlong * kQuad) + thread % kLanesAlong * kQuad +
           j % kQuad;
  }
};

using LargeTile = TileShape<128, 128, 2, 2>;
using MediumTile = TileShape<64, 64, 1, 2>;
using SmallTile = TileShape<32, 32, 1, 1>;

/// Says what a block computes. Numbers of 32 bits save registers.
struct TileTask {
  uint32_t row;
  uint32_t col;
  uint32_t rows;  ///< of the tile that the result has
  uint32_t cols;
  uint32_t group;
};

constexpr uint32_t Clipped(size_t value, uint32_t most) {
  return value < most ? static_cast<uint32_t>(value) : most;
}

/// Returns a product's task of that number. Neighbours are in a band of tiles,
/// so that blocks that run at once read the same operands.
template <typename Shape>
constexpr TileTask TaskOf(const Product& product, size_t number) {
  constexpr uint32_t kBand = 8;
  const auto rows = static_cast<uint32_t>(product.result.c.rows());
  const auto cols = static_cast<uint32_t>(product.result.c.cols());
  const uint32_t down = (rows + Shape::kRows - 1) / Shape::kRows;
  const uint32_t along = (cols + Shape::kCols - 1) / Shape::kCols;
  const auto group = static_cast<uint32_t>(number / (down * along));
  const uint32_t tile = static_cast<uint32_t>(number) - group * down * along;
  const uint32_t top = tile / (kBand * along) * kBand;
  const uint32_t height = Clipped(down - top, kBand);
  const uint32_t in_band = tile - top * along;
  const uint32_t row = (top + in_band % height) * Shape::kRows;
  const uint32_t col = in_band / height * Shape::kCols;
  return {row, col, Clipped(rows - row, Shape::kRows),
          Clipped(cols - col, Shape::kCols), group};
}

/// Copies the part of one side that a slab has into the block's memory.
/// kInQuads: four rows at a time.
template <uint32_t kRows, uint32_t kThreads, bool kInQuads>
struct SlabSide {
  using Rows = float[kSlabSteps][kRows + kQuad];

  const float* first;  ///< of the tile's rows and all steps
  uint32_t row_stride;
  uint32_t step_stride;
  uint32_t rows;  ///< that may be read
  float missing;

  constexpr SlabSide(const Side& side, uint32_t first_row, float of_missing)
      : first(side.values.At(first_row, 0)),
        row_stride(static_cast<uint32_t>(side.values.row_stride)),
        step_stride(static_cast<uint32_t>(side.values.step_stride)),
        rows(Clipped(side.readable_rows - first_row, kRows)),
        missing(of_missing) {}

  /// Begins a thread's copies of a slab's `steps` from `begin` on; the rest of
  /// the slab is missing.
  template <typename Block>
  constexpr void Copy(Block& block, uint32_t thread, uint32_t begin,
                      uint32_t steps, Rows& slab) const {
    const float* const from = first + size_t{begin} * step_stride;
    if constexpr (kInQuads) {
      constexpr uint32_t kAlong = kRows / kQuad;
      static_assert(kThreads % kAlong == 0);
      const uint32_t row = thread % kAlong * kQuad;
      ISOLOSS_UNROLL
      for (uint32_t i = 0; i < kSlabSteps; i += kThreads / kAlong) {
        const uint32_t step = i + thread / kAlong;
        if (row < rows && step < steps) {
          block.template Copy<kQuad>(from + (row + step * step_stride),
                                     &slab[step][row]);
        } else {
          for (uint32_t j = 0; j < kQuad; ++j) slab[step][row + j] = missing;
        }
      }
      return;
    }
    // Neighbouring threads copy neighbours in memory.
    const bool along_steps = step_stride == 1;
    const uint32_t rows_of_turn = along_steps ? kThreads / kSlabSteps : 0;
    const uint32_t steps_of_turn = along_steps ? 0 : kThreads / kRows;
    uint32_t row = along_steps ? thread / kSlabSteps : thread % kRows;
    uint32_t step = along_steps ? thread % kSlabSteps : thread / kRows;
    while (row < kRows && step < kSlabSteps) {
      if (row < rows && step < steps) {
        block.template Copy<1>(from + (row * row_stride + step * step_stride),
                               &slab[step][row]);
      } else {
        slab[step][row] = missing;
      }
      row += rows_of_turn;
      step += steps_of_turn;
    }
  }
};

/// Computes tiles of products whose sums are chains. kPieces: segments may have
/// several pieces or factors.
template <typename Shape, bool kPieces>
struct MultiplyTiles {
  static constexpr uint32_t kThreads = Shape::kThreads;
  static constexpr uint32_t kThreadRows = Shape::kThreadRows;
  static constexpr uint32_t kThreadCols = Shape::kThreadCols;
  template <bool kInQuads>
  using SideOfA = SlabSide<Shape::kRows, kThreads, kInQuads>;
  template <bool kInQuads>
  using SideOfB = SlabSide<Shape::kCols, kThreads, kInQuads>;
  struct Slab {
    alignas(16) typename SideOfA<true>::Rows a;
    alignas(16) typename SideOfB<true>::Rows b;
  };
  /// Two blocks of the largest tile hide each other's waits.
  static constexpr uint32_t kBlocksOfProcessor = kPieces ? 1 : 512 / kThreads;
  static constexpr uint32_t kSlabs = 3;
  struct Shared {
    Slab slabs[kSlabs];
  };
  /// Holds a thread's elements of the tile.
  struct Sums {
    float of[kThreadRows][kThreadCols];
  };

  Table<Product, &Product::tasks_end> products;

  size_t blocks() const { return products.total; }

  template <typename Block>
  constexpr void operator()(Block& block) const {
    const auto [entry, found] = products.Find(block.index());
    const Product& product = *entry;
    const TileTask task = TaskOf<Shape>(product, found);
    const auto number = static_cast<uint32_t>(found);
    const auto group = static_cast<uint32_t>(product.group);
    const auto segments = static_cast<uint32_t>(product.segment_count);
    const uint32_t first = task.group * group;
    const uint32_t count = Clipped(segments - first, group);
    typename Block::template PerThread<Sums> sums;
    uint32_t aside = 0;
    for (uint32_t i = 0; i < count; ++i) {
      SumSegment(block, product, task, product.segments[first + i], sums);
      aside = Fold(block, product, number, i, i + 1 == count, aside, sums);
    }
    block.Each([&product, &task, &sums](size_t thread) {
      Write(product, task, static_cast<uint32_t>(thread), sums[thread]);
    });
  }

 private:
  /// Calls use(i, j) for each element of a thread, in an unrolled loop.
  template <typename Use>
  static constexpr void ForEachSum(const Use& use) {
    ISOLOSS_UNROLL
    for (uint32_t i = 0; i < kThreadRows; ++i) {
      ISOLOSS_UNROLL
      for (uint32_t j = 0; j < kThreadCols; ++j) use(i, j);
    }
  }

  template <typename Block, typename PerThread>
  static constexpr void SumSegment(Block& block, const Product& product,
                                   const TileTask& task, const Segment& segment,
                                   PerThread& sums) {
    if constexpr (!kPieces) {
      SumPiece(block, product, task, segment.begin, segment.end, sums);
      return;
    }
    typename Block::template PerThread<Sums> piece_sums;
    block.Each([&sums](size_t thread) { sums[thread] = {}; });
    uint32_t piece = segment.first_piece;
    uint32_t end = segment.begin;
    for (uint32_t begin = segment.begin; begin < segment.end; begin = end) {
      end = begin + Clipped(product.StepsOfPiece(), segment.end - begin);
      SumPiece(block, product, task, begin, end, piece_sums);
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

  /// Sets sums to the chains over steps [begin, end).
  template <typename Block, typename PerThread>
  static constexpr void SumPiece(Block& block, const Product& product,
                                 const TileTask& task, uint32_t begin,
                                 uint32_t end, PerThread& sums) {
    if (product.a.has_quads && product.b.has_quads) {
      SumSlabs<true>(block, product, task, begin, end, sums);
    } else {
      SumSlabs<false>(block, product, task, begin, end, sums);
    }
  }

  /// One slab is multiplied while the next ones are on their way.
  template <bool kInQuads, typename Block, typename PerThread>
  static constexpr void SumSlabs(Block& block, const Product& product,
                                 const TileTask& task, uint32_t begin,
                                 uint32_t end, PerThread& sums) {
    // The product of what is missing is -0, which changes no sum.
    const SideOfA<kInQuads> a(product.a, task.row, -0.0f);
    const SideOfB<kInQuads> b(product.b, task.col, 0.0f);
    block.Each([&block, &sums, &a, &b, begin, end](size_t thread) {
      ForEachSum(
          [&of = sums[thread].of](uint32_t i, uint32_t j) { of[i][j] = 0.0f; });
      for (uint32_t i = 0; i + 1 < kSlabs; ++i) {
        CopySlab(block, a, b, thread, begin + i * kSlabSteps, end, i);
      }
      block.template AwaitCopies<kSlabs - 2>();
    });
    uint32_t now = 0;
    for (uint32_t step = begin; step < end; step += kSlabSteps) {
      const uint32_t free = now == 0 ? kSlabs - 1 : now - 1;
      const uint32_t next = step + (kSlabs - 1) * kSlabSteps;
      block.Each(
          [&block, &task, &sums, &a, &b, next, end, now, free](size_t thread) {
            CopySlab(block, a, b, thread, next, end, free);
            MultiplySlab(block.shared().slabs[now], task,
                         static_cast<uint32_t>(thread), sums[thread]);
            block.template AwaitCopies<kSlabs - 2>();
          });
      now = now + 1 == kSlabs ? 0 : now + 1;
    }
  }

  template <typename Block, bool kInQuads>
  static constexpr void CopySlab(Block& block, const SideOfA<kInQuads>& a,
                                 const SideOfB<kInQuads>& b, size_t thread,
                                 uint32_t begin, uint32_t end, uint32_t slab) {
    if (begin < end) {
      const uint32_t steps = Clipped(end - begin, kSlabSteps);
      Slab& to = block.shared().slabs[slab];
      a.Copy(block, static_cast<uint32_t>(thread), begin, steps, to.a);
      b.Copy(block, static_cast<uint32_t>(thread), begin, steps, to.b);
    }
    block.CommitCopies();
  }

  static constexpr void MultiplySlab(const Slab& slab, const TileTask& task,
                                     uint32_t thread, Sums& sums) {
    const uint32_t row = Shape::RowOf(thread, 0);
    const uint32_t col = Shape::ColOf(thread, 0);
    if (row >= task.rows || col >= task.cols) return;
    ISOLOSS_UNROLL
    for (uint32_t step = 0; step < kSlabSteps; ++step) {
      float a[kThreadRows];
      float b[kThreadCols];
      ISOLOSS_UNROLL
      for (uint32_t i = 0; i < kThreadRows; ++i) {
        a[i] = slab.a[step][row + Shape::RowOf(0, i)];
      }
      ISOLOSS_UNROLL
      for (uint32_t j = 0; j < kThreadCols; ++j) {
        b[j] = slab.b[step][col + Shape::ColOf(0, j)];
      }
      ForEachSum([&a, &b, &sums](uint32_t i, uint32_t j) {
        sums.of[i][j] = std::fma(a[i], b[j], sums.of[i][j]);
      });
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
      ForEachSum([&](uint32_t row, uint32_t col) {
        float* const column = stack + (row * kThreadCols + col) * kThreads;
        float& sum = sums[thread].of[row][col];
        for (uint32_t level = aside; level > aside - closed; --level) {
          sum = column[(level - 1) * kElements] + sum;
        }
        if (!is_last) column[(aside - closed) * kElements] = sum;
      });
    });
    return aside - closed + 1;
  }

  static constexpr void Write(const Product& product, const TileTask& task,
                              uint32_t thread, const Sums& sums) {
    // Copies: writing to the result might change the product for all that a
    // compiler knows.
    const Result result = product.result;
    float* const subtrees = product.subtrees;
    ForEachSum([&](uint32_t i, uint32_t j) {
      const uint32_t tile_row = Shape::RowOf(thread, i);
      const uint32_t tile_col = Shape::ColOf(thread, j);
      if (tile_row >= task.rows || tile_col >= task.cols) return;
      const size_t row = size_t{task.row} + tile_row;
      const size_t col = size_t{task.col} + tile_col;
      if (subtrees == nullptr) {
        result.Write(row, col, sums.of[i][j]);
      } else {
        const size_t first = size_t{task.group} * result.c.rows() + row;
        subtrees[first * result.c.cols() + col] = sums.of[i][j];
      }
    });
  }
};

}  // namespace isoloss::device
