// Defines every statistic: scalar, built on formats/. Meanings and shapes stand
// in statistics.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/kernels/statistics.h"

namespace isoloss::kernels::scalar {

Moments MomentsOf(std::span<const float> run);
QuantizationErrors ErrorsOf(std::span<const float> run,
                            std::span<const float> quantized);
void TallyBlocksAlong(std::span<const float> run,
                      const formats::Quantization* spec, BlockTally& tally);
void TallyBlocksDown(MatrixView<const float> block,
                     const formats::Quantization* spec, BlockTally& tally);
void QuantizeDequantizeDown(MatrixView<const float> block,
                            const formats::Quantization& spec,
                            MatrixView<float> out);

/// The elements of this block lie `stride` apart.
struct StridedBlock {
  const float* first;
  size_t stride;
  size_t count;
};

/// The extremes are of the finite elements of a block.
struct BlockExtremes {
  float largest;   ///< magnitude; 0 if all are zero or none is finite
  float smallest;  ///< magnitude other than zero, if there is one
  size_t place;    ///< of the first largest
};

/// Adds one block to a tally, whatever elements it has.
void TallyBlock(const StridedBlock& block, const formats::Quantization* spec,
                BlockTally& tally);
/// Adds a block whose elements are all finite.
void TallyFiniteBlock(const StridedBlock& block, const BlockExtremes& extremes,
                      const formats::Quantization* spec, BlockTally& tally);

}  // namespace isoloss::kernels::scalar
