// Defines the kernels for rows that would travel between ranks. Their values
// are those of kernels/travel.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "isoloss/device/element_kernels.h"
#include "isoloss/device/kernel.h"
#include "isoloss/kernels/travel.h"

namespace isoloss::device {

/// A block is kThreads columns of a row: whole runs, whose largest magnitudes
/// are found by halving.
struct RoundTripRuns {
  static constexpr size_t kThreads = kernels::kScaledRun;
  struct Shared {
    uint32_t largest[kThreads];
  };

  Input from;
  kernels::RowFormat format;
  Rounding rounding;
  Output to;

  constexpr size_t blocks_of_row() const {
    return CeilOf(from.cols(), kThreads);
  }
  size_t blocks() const { return from.rows() * blocks_of_row(); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const auto [row, piece] = PlaceOf(block.index(), blocks_of_row());
    const size_t run = kernels::RunOf(format);
    block.Each([this, row = row, piece = piece, &block](size_t thread) {
      const size_t j = piece * kThreads + thread;
      const float value = j < from.cols() ? from(row, j) : 0.0f;
      block.shared().largest[thread] =
          std::bit_cast<uint32_t>(value) & formats::fp32::kMagnitude;
    });
    for (size_t apart = run / 2; apart > 0; apart /= 2) {
      block.Each([run, apart, &block](size_t thread) {
        if (thread % run >= apart) return;
        uint32_t& mine = block.shared().largest[thread];
        const uint32_t other = block.shared().largest[thread + apart];
        if (mine < other) mine = other;
      });
    }
    block.Each([this, row = row, piece = piece, run, &block](size_t thread) {
      const size_t j = piece * kThreads + thread;
      if (j >= from.cols()) return;
      const uint32_t largest = block.shared().largest[thread / run * run];
      to(row, j) = kernels::RoundTripped(
          from(row, j), kernels::FactorsOfRun(format, largest), rounding);
    });
  }
};

struct SumElement {
  kernels::RowSums sums;  ///< whose indices lie in the device's memory
  kernels::SumRounding how;
  Output out;

  constexpr void operator()(size_t n) const {
    const auto [i, j] = PlaceOf(n, out.cols());
    out(i, j) = sums.Of(i, j, how);
  }
};

}  // namespace isoloss::device
