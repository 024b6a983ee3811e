// Tiles of products that tensor cores compute: a block has one in its
// registers, and multiplies packed operands slab by slab. Each element is a sum
// by an accumulator in ascending k.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/device/fragments.h"
#include "isoloss/device/gemm_products.h"
#include "isoloss/device/gemm_tiles.h"
#include "isoloss/device/kernel.h"
#include "isoloss/device/tensor_task.h"

namespace isoloss::device {

/// A block's tile of a result. Each warp has kWarpRows x kWarpCols of it, in
/// fragments. kBlocks_: so many blocks are to fit on a processor.
template <uint32_t kRows_, uint32_t kCols_, uint32_t kWarpRows,
          uint32_t kWarpCols, uint32_t kBlocks_>
struct FragmentShape {
  static constexpr uint32_t kRows = kRows_;
  static constexpr uint32_t kCols = kCols_;
  static constexpr uint32_t kBlocks = kBlocks_;
  static constexpr uint32_t kFragmentsDown = kWarpRows / kFragmentRows;
  static constexpr uint32_t kFragmentsAlong = kWarpCols / kFragmentCols;
  static constexpr uint32_t kNeighbours = 2;
  static constexpr uint32_t kThreadRows = 2 * kFragmentsDown;
  static constexpr uint32_t kThreadCols = kNeighbours * kFragmentsAlong;
  static constexpr uint32_t kWarpsAlong = kCols / kWarpCols;
  static constexpr uint32_t kThreads =
      kWarp * (kRows / kWarpRows) * kWarpsAlong;

  static constexpr uint32_t WarpRowOf(uint32_t thread) {
    return thread / kWarp / kWarpsAlong * kWarpRows;
  }
  static constexpr uint32_t WarpColOf(uint32_t thread) {
    return thread / kWarp % kWarpsAlong * kWarpCols;
  }
  static constexpr uint32_t RowOf(uint32_t thread, uint32_t i) {
    return WarpRowOf(thread) + i / 2 * kFragmentRows +
           FragmentLane(thread).RowOfA(i);
  }
  static constexpr uint32_t ColOf(uint32_t thread, uint32_t j) {
    return WarpColOf(thread) + j / 2 * kFragmentCols +
           2 * FragmentLane(thread).pair + j % 2;
  }
};

using HugeFragments = FragmentShape<128, 256, 64, 64, 1>;
using LargeFragments = FragmentShape<128, 128, 64, 64, 2>;
/// Sums of pieces need the registers of smaller warps.
using LargePieces = FragmentShape<128, 128, 64, 32, 1>;
using MediumFragments = FragmentShape<64, 64, 32, 32, 4>;
using SmallFragments = FragmentShape<32, 32, 16, 16, 6>;

/// Rows of a slab in the block's memory consist of chunks of 4 words, the
/// copies of a thread. Their order differs from row to row: neither the copies
/// of 8 threads nor a word of 8 rows have two places in a bank.
inline constexpr uint32_t kSlabWords = kPackedSteps / 2;
inline constexpr uint32_t kChunks = kSlabWords / kQuad;

/// Returns the first word of a chunk. Rows 8 apart have the same order.
constexpr uint32_t WordOfChunk(uint32_t row, uint32_t chunk) {
  return kQuad * (chunk ^ (row / 2 % kChunks));
}

/// A thread's copies of what slabs have of one side into the block's memory.
/// Rows that are missing leave it as it was.
template <uint32_t kRows, uint32_t kThreads>
class PackedCopies {
 public:
  using Rows = uint32_t[kRows][kSlabWords];

  constexpr PackedCopies() = default;
  /// The first slab begins at step `begin`.
  constexpr PackedCopies(const Side& side, uint32_t first_row, uint32_t begin,
                         uint32_t thread)
      : apart_(kTurn * side.packed.row_stride) {
    const uint32_t row = thread / kChunks;
    const uint32_t rows = Clipped(side.readable_rows - first_row, kRows);
    from_ =
        side.packed.At(first_row + row, begin + thread % kChunks * (2 * kQuad));
    left_ = row < rows ? rows - row : 0;
  }

  /// Begins the copies of the next slab.
  template <typename Block>
  constexpr void Begin(Block& block, uint32_t thread, Rows& slab) {
    const uint32_t row = thread / kChunks;
    const auto to =
        block.AddressOf(&slab[row][WordOfChunk(row, thread % kChunks)]);
    ISOLOSS_UNROLL
    for (uint32_t i = 0; i < kRows / kTurn; ++i) {
      if (i * kTurn >= left_) continue;
      block.template Copy<kQuad>(from_ + i * apart_,
                                 to + i * kTurn * kSlabWords);
    }
    from_ += kPackedSteps;
  }

 private:
  /// In its next turn a thread is so many rows further.
  static constexpr uint32_t kTurn = kThreads / kChunks;
  static_assert(kRows % kTurn == 0 && kTurn % 8 == 0);

  const uint16_t* from_ = nullptr;
  size_t apart_ = 0;   // of two turns in memory
  uint32_t left_ = 0;  // rows from the thread's first one on
};

/// Base of kernels whose blocks let tensor cores sum tiles of products.
template <typename Shape>
struct FragmentTile : SumTile<Shape> {
  using Base = SumTile<Shape>;
  using typename Base::Sums;
  using SideOfA = PackedCopies<Shape::kRows, Shape::kThreads>;
  using SideOfB = PackedCopies<Shape::kCols, Shape::kThreads>;
  struct Slab {
    alignas(kQuadBytes) typename SideOfA::Rows a;
    alignas(kQuadBytes) typename SideOfB::Rows b;
  };
  static constexpr uint32_t kSlabs = 4;
  static constexpr bool kIsSoonSummed = true;  ///< so that writing it counts
  struct Shared {
    Slab slabs[kSlabs];
  };
  /// Holds what a thread has of its warp's factors of one instruction.
  struct Factors {
    uint32_t a[Shape::kFragmentsDown][4];
    uint32_t b[Shape::kFragmentsAlong][2];
  };
  struct Operands {
    SideOfA a;
    SideOfB b;
    Factors factors[kPackedSteps / kFragmentSteps];
  };
  /// Slabs of a task are copied in one row, whatever pieces they belong to.
  template <typename Block>
  struct Flow {
    typename Block::template PerThread<Operands> operands;
    uint32_t end;  ///< of the task's steps
    uint32_t now;  ///< the slab that is multiplied next
  };

 protected:
  /// Begins to copy the slabs of steps [begin, end).
  template <typename Block>
  static constexpr void Begin(Block& block, const Product& product,
                              const TileTask& task, uint32_t begin,
                              uint32_t end, Flow<Block>& flow) {
    flow.end = end;
    flow.now = 0;
    block.Each([&block, &product, &task, &flow, begin](size_t thread) {
      const auto number = static_cast<uint32_t>(thread);
      Operands& of = flow.operands[thread];
      of.a = SideOfA(product.a, task.row, begin, number);
      of.b = SideOfB(product.b, task.col, begin, number);
      for (uint32_t i = 0; i + 1 < kSlabs; ++i) {
        CopySlab(block, number, begin + i * kPackedSteps < flow.end, i, of);
      }
      block.template AwaitCopies<kSlabs - 2>();
    });
  }

  /// Sets sums of a tile to those of the next steps, [begin, end).
  template <typename Block, typename PerThread>
  static constexpr void SumSteps(Block& block, const Product& product,
                                 const TileTask& task, uint32_t begin,
                                 uint32_t end, Flow<Block>& flow,
                                 PerThread& sums) {
    block.Each([&sums](size_t thread) { sums[thread] = {}; });
    for (uint32_t step = begin; step < end; step += kPackedSteps) {
      block.EachWarp([&](auto& warp) {
        const bool copies = step + (kSlabs - 1) * kPackedSteps < flow.end;
        const uint32_t free = (flow.now + kSlabs - 1) % kSlabs;
        warp.Each([&](size_t thread) {
          CopySlab(block, static_cast<uint32_t>(thread), copies, free,
                   flow.operands[thread]);
        });
        if (Base::HasElements(task.extent(), warp.first())) {
          MultiplySlab(warp, product.accumulator,
                       block.shared().slabs[flow.now], step == begin,
                       flow.operands, sums);
        }
        warp.Each([&](size_t) { block.template AwaitCopies<kSlabs - 2>(); });
      });
      flow.now = (flow.now + 1) % kSlabs;
    }
    if (begin == end) return;
    block.EachWarp([&](auto& warp) {
      if (!Base::HasElements(task.extent(), warp.first())) return;
      Multiply<kLastFactors>(warp, product.accumulator, flow.operands, sums);
    });
  }

 private:
  static constexpr uint32_t kLastFactors = kPackedSteps / kFragmentSteps - 1;

  template <typename Block>
  static constexpr void CopySlab(Block& block, uint32_t thread, bool is_there,
                                 uint32_t slab, Operands& operands) {
    if (is_there) {
      Slab& to = block.shared().slabs[slab];
      operands.a.Begin(block, thread, to.a);
      operands.b.Begin(block, thread, to.b);
    }
    block.CommitCopies();
  }

  /// Products lag one instruction behind their factors, so that no warp waits
  /// for the slab. The last ones of the slab before belong to these sums unless
  /// `is_first`: the branch is around both, so that loads and products mix.
  template <typename Warp, typename OperandsOf, typename SumsOf>
  static constexpr void MultiplySlab(Warp& warp,
                                     const kernels::Accumulator& accumulator,
                                     const Slab& slab, bool is_first,
                                     OperandsOf& operands, SumsOf& sums) {
    static_assert(kLastFactors == 1);
    if (is_first) {
      Load<0>(warp, slab, operands);
      Load<1>(warp, slab, operands);
      Multiply<0>(warp, accumulator, operands, sums);
    } else {
      Load<0>(warp, slab, operands);
      Multiply<1>(warp, accumulator, operands, sums);
      Load<1>(warp, slab, operands);
      Multiply<0>(warp, accumulator, operands, sums);
    }
  }

  /// Loads the factors of the slab's instruction kNumber.
  template <uint32_t kNumber, typename Warp, typename OperandsOf>
  static constexpr void Load(Warp& warp, const Slab& slab,
                             OperandsOf& operands) {
    warp.Each([&slab, &operands](size_t thread) {
      const auto number = static_cast<uint32_t>(thread);
      const FragmentLane lane(number);
      Factors& to = operands[thread].factors[kNumber];
      const uint32_t row = Shape::WarpRowOf(number) + lane.row;
      const uint32_t col = Shape::WarpColOf(number) + lane.row;
      ISOLOSS_UNROLL
      for (uint32_t i = 0; i < Shape::kFragmentsDown; ++i) {
        ISOLOSS_UNROLL
        for (uint32_t word = 0; word < 4; ++word) {
          to.a[i][word] =
              slab.a[row + i * kFragmentRows + word % 2 * 8]
                    [WordOfChunk(lane.row, 2 * kNumber + word / 2) + lane.pair];
        }
      }
      ISOLOSS_UNROLL
      for (uint32_t j = 0; j < Shape::kFragmentsAlong; ++j) {
        ISOLOSS_UNROLL
        for (uint32_t word = 0; word < 2; ++word) {
          to.b[j][word] =
              slab.b[col + j * kFragmentCols]
                    [WordOfChunk(lane.row, 2 * kNumber + word) + lane.pair];
        }
      }
    });
  }

  template <uint32_t kNumber, typename Warp, typename OperandsOf,
            typename SumsOf>
  static constexpr void Multiply(Warp& warp,
                                 const kernels::Accumulator& accumulator,
                                 OperandsOf& operands, SumsOf& sums) {
    ISOLOSS_UNROLL
    for (uint32_t i = 0; i < Shape::kFragmentsDown; ++i) {
      ISOLOSS_UNROLL
      for (uint32_t j = 0; j < Shape::kFragmentsAlong; ++j) {
        warp.AddProducts(accumulator, [&operands, &sums, i, j](size_t thread) {
          const Factors& factors = operands[thread].factors[kNumber];
          auto& of = sums[thread].of;
          return Fragments{factors.a[i], factors.b[j], &of[2 * i][2 * j],
                           &of[2 * i + 1][2 * j]};
        });
      }
    }
  }
};

}  // namespace isoloss::device
