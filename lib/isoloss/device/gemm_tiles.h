// Tiles of products: a block has one in its registers, and multiplies it slab
// by slab. Each element is one chain of fused multiply-adds in ascending k.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "isoloss/device/fragments.h"
#include "isoloss/device/gemm_products.h"
#include "isoloss/device/kernel.h"
#include "isoloss/device/quads.h"

namespace isoloss::device {

/// Blocks multiply slabs of this many steps.
inline constexpr uint32_t kSlabSteps = 16;
/// Offsets in a tile of an operand have 32 bits, so strides are shorter.
inline constexpr size_t kLongestStride = size_t{1} << 24;

/// A block's tile of a result. Each warp has kWarpRows x kWarpCols of it, and
/// of these each thread has quads that are 8 rows and 4 columns of quads apart.
/// kBlocks_: so many blocks are to fit on a processor.
template <uint32_t kRows_, uint32_t kCols_, uint32_t kRowQuads,
          uint32_t kColQuads, uint32_t kBlocks_>
struct TileShape {
  static constexpr uint32_t kRows = kRows_;
  static constexpr uint32_t kCols = kCols_;
  static constexpr uint32_t kBlocks = kBlocks_;
  static constexpr uint32_t kThreadRows = kRowQuads * kQuad;
  static constexpr uint32_t kThreadCols = kColQuads * kQuad;
  static constexpr uint32_t kLanesDown = 8;
  static constexpr uint32_t kLanesAlong = 4;
  static constexpr uint32_t kWarpRows = kLanesDown * kThreadRows;
  static constexpr uint32_t kWarpCols = kLanesAlong * kThreadCols;
  static constexpr uint32_t kWarpsAlong = kCols / kWarpCols;
  static constexpr uint32_t kThreads =
      kWarp * (kRows / kWarpRows) * kWarpsAlong;
  static constexpr uint32_t kNeighbours = kQuad;

  // Half a warp reads 8 quads of rows, each by two neighbours, and 2 of
  // columns, each by every second lane: banks serve such a half in one turn.
  static constexpr uint32_t RowOf(uint32_t thread, uint32_t i) {
    const uint32_t lane_down = thread % kWarp / 2 % kLanesDown;
    return thread / kWarp / kWarpsAlong * kWarpRows +
           i / kQuad * (kLanesDown * kQuad) + lane_down * kQuad + i % kQuad;
  }
  static constexpr uint32_t ColOf(uint32_t thread, uint32_t j) {
    const uint32_t lane_along = thread % kWarp / 16 * 2 + thread % 2;
    return thread / kWarp % kWarpsAlong * kWarpCols +
           j / kQuad * (kLanesAlong * kQuad) + lane_along * kQuad + j % kQuad;
  }
};

using HugeTile = TileShape<128, 256, 2, 4, 1>;
using LargeTile = TileShape<128, 128, 2, 2, 2>;
using MediumTile = TileShape<64, 64, 2, 1, 4>;
using SmallTile = TileShape<32, 32, 1, 1, 8>;

constexpr uint32_t Clipped(size_t value, uint32_t most) {
  return value < most ? static_cast<uint32_t>(value) : most;
}

/// A thread's copies of what slabs have of one side into the block's memory.
/// Rows and steps that are missing leave it as it was.
template <uint32_t kRows, uint32_t kThreads>
class SideCopies {
 public:
  static constexpr uint32_t kStride = kRows + kQuad;
  using Rows = float[kSlabSteps][kStride];

  constexpr SideCopies() = default;
  /// The first slab begins at step `begin`.
  constexpr SideCopies(const Side& side, uint32_t first_row, uint32_t begin,
                       uint32_t thread)
      : from_(side.values.At(first_row, begin)),
        has_quads_(side.has_quads),
        along_steps_(side.values.along_steps()) {
    const uint32_t rows = Clipped(side.readable_rows - first_row, kRows);
    if (has_quads_) {
      SetFirst<kQuad, false>(side, rows, thread);
    } else if (along_steps_) {
      SetFirst<1, true>(side, rows, thread);
    } else {
      SetFirst<1, false>(side, rows, thread);
    }
  }

  /// Begins the copies of the next slab, which has at most `steps`.
  template <typename Block>
  constexpr void Begin(Block& block, uint32_t thread, uint32_t steps,
                       Rows& slab) {
    if (has_quads_) {
      Copy<kQuad, false>(block, thread, steps, slab);
    } else if (along_steps_) {
      Copy<1, true>(block, thread, steps, slab);
    } else {
      Copy<1, false>(block, thread, steps, slab);
    }
  }

 private:
  /// Neighbouring threads copy kCount neighbours in memory each, along steps or
  /// along rows. In its next turn a thread is kTurn rows or steps further.
  template <uint32_t kCount, bool kAlongSteps>
  struct Order {
    static constexpr uint32_t kAlong =
        kAlongSteps ? kSlabSteps : kRows / kCount;
    static constexpr uint32_t kTurn = kThreads / kAlong;
    static constexpr uint32_t kAcross = kAlongSteps ? kRows : kSlabSteps;
    static constexpr uint32_t kTurns = (kAcross + kTurn - 1) / kTurn;
    static_assert(kThreads % kAlong == 0);

    static constexpr uint32_t Along(uint32_t thread) {
      return thread % kAlong * kCount;
    }
    static constexpr uint32_t Across(uint32_t thread) {
      return thread / kAlong;
    }
  };

  template <uint32_t kCount, bool kAlongSteps>
  constexpr void SetFirst(const Side& side, uint32_t rows, uint32_t thread) {
    using Own = Order<kCount, kAlongSteps>;
    const uint32_t along = Own::Along(thread);
    const uint32_t across = Own::Across(thread);
    const size_t stride =
        kAlongSteps ? side.values.row_stride : side.values.step_stride;
    from_ += along + across * stride;
    apart_ = static_cast<uint32_t>(Own::kTurn * stride);
    if constexpr (kAlongSteps) {
      left_ = across < rows ? rows - across : 0;
    } else {
      left_ = along < rows ? kSlabSteps - across : 0;
    }
  }

  template <uint32_t kCount, bool kAlongSteps, typename Block>
  constexpr void Copy(Block& block, uint32_t thread, uint32_t steps,
                      Rows& slab) {
    using Own = Order<kCount, kAlongSteps>;
    const uint32_t along = Own::Along(thread);
    const uint32_t across = Own::Across(thread);
    uint32_t left = along < steps ? left_ : 0;
    if constexpr (!kAlongSteps) {
      left = Clipped(left_, across < steps ? steps - across : 0);
    }
    const auto to = block.AddressOf(kAlongSteps ? &slab[along][across]
                                                : &slab[across][along]);
    ISOLOSS_UNROLL
    for (uint32_t i = 0; i < Own::kTurns; ++i) {
      if (i * Own::kTurn >= left) continue;
      constexpr uint32_t kTo = Own::kTurn * (kAlongSteps ? 1 : kStride);
      block.template Copy<kCount>(from_ + size_t{i} * apart_, to + i * kTo);
    }
    from_ +=
        kAlongSteps ? kSlabSteps : size_t{apart_ / Own::kTurn} * kSlabSteps;
  }

  const float* from_ = nullptr;  // the thread's first element of a slab
  uint32_t apart_ = 0;           // of two turns in memory
  uint32_t left_ = 0;            // rows or steps from the first element on
  bool has_quads_ = false;
  bool along_steps_ = false;
};

/// Base of kernels whose blocks hold sums of a tile. A thread's columns are in
/// groups of Shape::kNeighbours.
template <typename Shape_>
struct SumTile {
  using Shape = Shape_;
  static constexpr uint32_t kBlocksOfProcessor = Shape::kBlocks;
  static constexpr uint32_t kThreads = Shape::kThreads;
  static constexpr uint32_t kThreadRows = Shape::kThreadRows;
  static constexpr uint32_t kThreadCols = Shape::kThreadCols;
  /// Holds a thread's elements of the tile.
  struct Sums {
    float of[kThreadRows][kThreadCols];
  };

 protected:
  /// Calls use(i, j) for each element of a thread, in an unrolled loop.
  template <typename Use>
  static constexpr void ForEachSum(const Use& use) {
    ISOLOSS_UNROLL
    for (uint32_t i = 0; i < kThreadRows; ++i) {
      ISOLOSS_UNROLL
      for (uint32_t j = 0; j < kThreadCols; ++j) use(i, j);
    }
  }

  /// Calls use(i, j, element) for each element of a thread that the tile has;
  /// the first one of the tile is at `to`.
  template <typename Use>
  static constexpr void ForEachElementAt(float* to, size_t stride,
                                         const TileExtent& tile, size_t thread,
                                         const Use& use) {
    ForEachSum([&](uint32_t i, uint32_t j) {
      const uint32_t row = Shape::RowOf(static_cast<uint32_t>(thread), i);
      const uint32_t col = Shape::ColOf(static_cast<uint32_t>(thread), j);
      if (row >= tile.rows || col >= tile.cols) return;
      use(i, j, to[row * stride + col]);
    });
  }

  static constexpr bool HasElements(const TileExtent& tile, uint32_t thread) {
    return Shape::RowOf(thread, 0) < tile.rows &&
           Shape::ColOf(thread, 0) < tile.cols;
  }
};

/// Base of kernels whose blocks sum tiles of products.
template <typename Shape>
struct ProductTile : SumTile<Shape> {
  using Base = SumTile<Shape>;
  using Base::kThreadCols;
  using Base::kThreadRows;
  using Base::kThreads;
  using typename Base::Sums;
  using SideOfA = SideCopies<Shape::kRows, kThreads>;
  using SideOfB = SideCopies<Shape::kCols, kThreads>;
  struct Slab {
    alignas(16) typename SideOfA::Rows a;
    alignas(16) typename SideOfB::Rows b;
  };
  static constexpr uint32_t kSlabs = 3;
  static constexpr bool kIsSoonSummed = false;
  struct Shared {
    Slab slabs[kSlabs];
  };
  /// Holds what a thread multiplies in a step.
  struct Factors {
    float a[kThreadRows];
    float b[kThreadCols];
  };
  struct Operands {
    SideOfA a;
    SideOfB b;
    Factors factors;
  };
  /// No copy goes beyond its piece.
  template <typename Block>
  struct Flow {};

 protected:
  using Base::ForEachSum;
  using Base::HasElements;

  template <typename Block>
  static constexpr void Begin(Block& /*block*/, const Product& /*product*/,
                              const TileTask& /*task*/, uint32_t /*begin*/,
                              uint32_t /*end*/, Flow<Block>& /*flow*/) {}

  template <typename Block, typename PerThread>
  static constexpr void SumSteps(Block& block, const Product& product,
                                 const TileTask& task, uint32_t begin,
                                 uint32_t end, Flow<Block>& /*flow*/,
                                 PerThread& sums) {
    SumSteps(block, product.a, task.row, product.b, task.col, task.extent(),
             begin, end, sums);
  }

  /// Sets sums of a tile to the chains over steps [begin, end). One slab is
  /// multiplied while the next ones are on their way.
  template <typename Block, typename PerThread>
  static constexpr void SumSteps(Block& block, const Side& a, uint32_t row,
                                 const Side& b, uint32_t col,
                                 const TileExtent& tile, uint32_t begin,
                                 uint32_t end, PerThread& sums) {
    typename Block::template PerThread<Operands> operands;
    block.Each([&block, &a, &b, &sums, &operands, row, col, begin,
                end](size_t thread) {
      const auto number = static_cast<uint32_t>(thread);
      Operands& of = operands[thread];
      of.a = SideOfA(a, row, begin, number);
      of.b = SideOfB(b, col, begin, number);
      SetZero(sums[thread], of.factors);
      for (uint32_t i = 0; i + 1 < kSlabs; ++i) {
        CopySlab(block, number, begin + i * kSlabSteps, end, i, of);
      }
      block.template AwaitCopies<kSlabs - 2>();
    });
    uint32_t now = 0;
    for (uint32_t step = begin; step < end; step += kSlabSteps) {
      const uint32_t free = now == 0 ? kSlabs - 1 : now - 1;
      block.Each([&block, &tile, &sums, &operands, step, end, now,
                  free](size_t thread) {
        const auto number = static_cast<uint32_t>(thread);
        Operands& of = operands[thread];
        CopySlab(block, number, step + (kSlabs - 1) * kSlabSteps, end, free,
                 of);
        if (HasElements(tile, number)) {
          MultiplySlab(block.shared().slabs[now], end - step, number,
                       of.factors, sums[thread]);
        }
        block.template AwaitCopies<kSlabs - 2>();
      });
      now = now + 1 == kSlabs ? 0 : now + 1;
    }
    block.Each([&sums, &operands](size_t thread) {
      Multiply(operands[thread].factors, sums[thread]);
    });
  }

  /// The product of the first factors is -0, which changes no sum.
  static constexpr void SetZero(Sums& sums, Factors& factors) {
    ForEachSum([&sums](uint32_t i, uint32_t j) { sums.of[i][j] = 0.0f; });
    ISOLOSS_UNROLL
    for (float& a : factors.a) a = -0.0f;
    ISOLOSS_UNROLL
    for (float& b : factors.b) b = 0.0f;
  }

  template <typename Block>
  static constexpr void CopySlab(Block& block, uint32_t thread, uint32_t begin,
                                 uint32_t end, uint32_t slab,
                                 Operands& operands) {
    if (begin < end) {
      Slab& to = block.shared().slabs[slab];
      operands.a.Begin(block, thread, end - begin, to.a);
      operands.b.Begin(block, thread, end - begin, to.b);
    }
    block.CommitCopies();
  }

  /// Multiplies as many `steps` as a slab has. Products lag one step behind the
  /// factors, so that no thread waits for the slab.
  static constexpr void MultiplySlab(const Slab& slab, uint32_t steps,
                                     uint32_t thread, Factors& factors,
                                     Sums& sums) {
    const uint32_t row = Shape::RowOf(thread, 0);
    const uint32_t col = Shape::ColOf(thread, 0);
    const auto multiply = [&](uint32_t step) {
      const Factors next = FactorsOf(slab, step, row, col);
      Multiply(factors, sums);
      factors = next;
    };
    if (steps >= kSlabSteps) {
      ISOLOSS_UNROLL
      for (uint32_t step = 0; step < kSlabSteps; ++step) multiply(step);
    } else {
      ISOLOSS_KEEP_ROLLED
      for (uint32_t step = 0; step < steps; ++step) multiply(step);
    }
  }

  static constexpr Factors FactorsOf(const Slab& slab, uint32_t step,
                                     uint32_t row, uint32_t col) {
    Factors factors;
    ISOLOSS_UNROLL
    for (uint32_t i = 0; i < kThreadRows; ++i) {
      factors.a[i] = slab.a[step][row + Shape::RowOf(0, i)];
    }
    ISOLOSS_UNROLL
    for (uint32_t j = 0; j < kThreadCols; ++j) {
      factors.b[j] = slab.b[step][col + Shape::ColOf(0, j)];
    }
    return factors;
  }

  static constexpr void Multiply(const Factors& factors, Sums& sums) {
    ForEachSum([&factors, &sums](uint32_t i, uint32_t j) {
      sums.of[i][j] = std::fma(factors.a[i], factors.b[j], sums.of[i][j]);
    });
  }
};

}  // namespace isoloss::device
