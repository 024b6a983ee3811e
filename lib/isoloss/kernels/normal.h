// Makes normally distributed numbers from random bits.
#pragma once

#include <array>
#include <cstdint>

namespace isoloss::kernels {

/// Returns a standard normal number made of 128 random bits by Box and Muller's
/// transform; the magnitude is at most 8.6. Exact: the same bits everywhere.
double StandardNormal(const std::array<uint32_t, 4>& bits);

}  // namespace isoloss::kernels
