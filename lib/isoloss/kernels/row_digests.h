// Digests of rows, which tell whether two matrices have equal bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"

namespace isoloss::kernels {

/// Returns an odd factor, one of 2^63 at random. Regular factors would let
/// wrong elements in a regular pattern of columns cancel out. Source
/// MurmurHash3's finalizer.
constexpr uint64_t DigestFactor(size_t col) {
  uint64_t word = uint64_t{col} + 1;
  word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD;
  word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53;
  return (word ^ word >> 33) | 1;
}

/// The part of a row's digest that the element in column `col` adds. Devices
/// share this text.
constexpr uint64_t DigestOfElement(float value, size_t col) {
  return DigestFactor(col) * std::bit_cast<uint32_t>(value);
}

/// digests[i] = sum over columns j of DigestFactor(j) * bits of x(i, j), modulo
/// 2^64. Factors are odd, so that one wrong element always alters the digest.
/// Shapes   x [T, D]; digests [T], in the host's memory.
/// Exact    bits of NaN count as they are.
void RowDigests(MatrixView<const float> x, std::span<uint64_t> digests,
                Executor& executor);

}  // namespace isoloss::kernels
