// Digests of rows, which tell whether two matrices have equal bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"

namespace isoloss::kernels {

/// The part of a row's digest that the element in column `col` adds. Devices
/// share this text.
constexpr uint64_t DigestOfElement(float value, size_t col) {
  return (2 * uint64_t{col} + 1) * std::bit_cast<uint32_t>(value);
}

/// digests[i] = sum over columns j of (2j + 1) * bits of x(i, j), modulo 2^64.
/// Factors are odd, so that one wrong element always alters the digest.
/// Shapes   x [T, D]; digests [T], in the host's memory.
/// Exact    bits of NaN count as they are.
void RowDigests(MatrixView<const float> x, std::span<uint64_t> digests,
                Executor& executor);

}  // namespace isoloss::kernels
