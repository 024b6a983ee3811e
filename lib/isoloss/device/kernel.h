// How a kernel of a device is written, so that a graphics processor and the
// emulation on the host run the same text.
//
// A kernel is a struct of plain arguments: numbers, and views of the device's
// memory. It has
//
//   static constexpr size_t kThreads;   threads of a block
//   size_t blocks() const;
//   struct Shared { … };                memory that a block's threads share
//   template <typename Block>
//   constexpr void operator()(Block& block) const;
//
// It may have kBlocksOfProcessor: so many blocks are to fit on a processor at
// once, which limits the registers of a thread.
//
// operator() divides the block's work into steps: block.Each(step) calls
// step(thread) for each thread, and no thread is past a step before all of them
// are. Threads keep what they need in the next step in Block::PerThread, or in
// block.shared(). Blocks do not see each other. No bit may depend on the order
// in which threads and blocks run.
//
// Threads are in warps of kWarp (fragments.h). block.EachWarp(step) calls
// step(warp) for each of them, as Each does for threads. A warp does in it what
// it does as one: warp.Each(step) is as Each for its threads, the first of
// which is warp.first(), except that they see in block.shared() what was there
// when EachWarp began; warp.AddProducts(accumulator, of) lets tensor cores add
// the products of of(thread), which are Fragments of each thread, to their
// sums. All threads of a warp take the same way through such a step.
//
// A thread may let copies into block.shared() run beside its other work:
// block.Copy<n>(from, to) begins one of n words of 4 bytes, 1 or 4, which are
// aligned to their size, where `to` is some block.AddressOf(pointer) + i;
// block.CommitCopies() makes a group of those since the last group;
// block.AwaitCopies<n>() waits until at most the last n groups are on their
// way. Others see them after the step in which their thread waited.
//
// All of it is constexpr, and so of literal types, since that lets the
// compilers of devices take it: nvcc drops calls of a function that cannot be
// constexpr. A device cannot bind an object of namespace scope to a reference,
// so constants are passed by value.
#pragma once

#include <cstddef>
#include <cstdint>

/// ISOLOSS_UNROLL unrolls the loop that follows where a device needs it: only
/// then can it keep arrays in registers. ISOLOSS_KEEP_ROLLED saves a device the
/// instructions of a loop that seldom runs.
#ifdef __CUDACC__
#define ISOLOSS_UNROLL _Pragma("unroll")
#define ISOLOSS_KEEP_ROLLED _Pragma("unroll 1")
#else
#define ISOLOSS_UNROLL
#define ISOLOSS_KEEP_ROLLED
#endif

namespace isoloss::device {

constexpr size_t CeilOf(size_t value, size_t divisor) {
  return (value + divisor - 1) / divisor;
}

constexpr size_t RoundUp(size_t value, size_t multiple) {
  return CeilOf(value, multiple) * multiple;
}

/// Threads of one block have nothing in common.
struct NothingShared {};

/// A kernel that calls body(i) for each i in [0, count).
template <typename Body>
struct ForEachElement {
  static constexpr size_t kThreads = 256;
  using Shared = NothingShared;

  Body body;
  size_t count;

  size_t blocks() const { return CeilOf(count, kThreads); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const size_t first = block.index() * kThreads;
    block.Each([this, first](size_t thread) {
      if (first + thread < count) body(first + thread);
    });
  }
};

/// An element of a matrix that has `cols` columns.
struct Place {
  size_t row;
  size_t col;
};

constexpr Place PlaceOf(size_t index, size_t cols) {
  if ((index | cols) <= UINT32_MAX) {
    // A device has no instruction that divides numbers of 64 bits.
    const auto number = static_cast<uint32_t>(index);
    const auto divisor = static_cast<uint32_t>(cols);
    return {number / divisor, number % divisor};
  }
  return {index / cols, index % cols};
}

}  // namespace isoloss::device
