// A GPU's tensor cores add products of fragments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/device/fragments.h"

namespace isoloss::device {

/// What one lane of a warp has of fragments.
struct LaneFragments {
  uint32_t a[4];
  uint32_t b[2];
  float sums[4];  ///< two upper ones, two lower ones

  constexpr Fragments View() { return {a, b, sums, sums + 2}; }
};

/// Adds the products of each kWarp lanes to their sums, by the GPU of an
/// executor that MakeCuda returned.
void AddProductsOnGpu(std::span<LaneFragments> lanes, Executor& gpu);

}  // namespace isoloss::device
