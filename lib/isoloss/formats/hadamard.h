// The 16-point Walsh-Hadamard transform with signs.
#pragma once

#include <cstdint>
#include <span>

namespace isoloss::formats {

inline constexpr size_t kHadamardLength = 16;

/// run = (1/4) H diag(signs) run, H in Sylvester's order: element i changes its
/// sign where bit i of `negative` is set; then four stages of sums and
/// differences of elements 1, 2, 4 and 8 apart; then all are multiplied by 1/4.
/// Each operation is one FP32 operation.
void Hadamard16(std::span<float> run, uint32_t negative);

}  // namespace isoloss::formats
