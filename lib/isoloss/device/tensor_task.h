// Describes tensors that a device prepares, which are parts of operands.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "isoloss/device/kernel.h"
#include "isoloss/device/table.h"
#include "isoloss/formats/rules.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::device {

using formats::Scale;

inline constexpr size_t kTileRows = 32;
inline constexpr size_t kTileSteps = 128;
/// A thread has a run of this many steps of a row, which is that of a
/// transform.
inline constexpr size_t kRun = formats::kHadamardLength;
inline constexpr size_t kRunsOfTile = kTileSteps / kRun;
inline constexpr size_t kTileThreads = kTileRows * kRunsOfTile;

/// Tensor cores read packed operands, so many steps of a piece at once. Zeros
/// of both sides fill up its end: the exponent of their product is -252, the
/// least there is, so that no other term is cut off for them.
inline constexpr size_t kPackedSteps = 32;

/// Returns where a step of a segment lies among its packed steps. `piece_steps`
/// of 0 mean one piece.
constexpr size_t PackedStepOf(size_t step, size_t piece_steps) {
  if (piece_steps == 0) return step;
  const Place place = PlaceOf(step, piece_steps);
  return place.row * RoundUp(piece_steps, kPackedSteps) + place.col;
}

/// Returns the number of packed steps of a segment.
constexpr size_t PackedLength(size_t steps, size_t piece_steps) {
  return steps == 0
             ? 0
             : RoundUp(PackedStepOf(steps - 1, piece_steps) + 1, kPackedSteps);
}

/// Holds the bits of largest magnitudes: finite < infinity < NaN.
struct Amax {
  uint32_t numbers = 0;  ///< without NaN
  uint32_t all = 0;

  constexpr void Raise(const Amax& other) {
    numbers = formats::Max(numbers, other.numbers);
    all = formats::Max(all, other.all);
  }
  constexpr void Raise(float value) {
    const uint32_t bits =
        std::bit_cast<uint32_t>(value) & formats::fp32::kMagnitude;
    Raise({bits > formats::fp32::kInfinity ? 0 : bits, bits});
  }
};

/// Says how a tensor gets into an operand, or is quantised in place.
struct TensorTask {
  StepRows<const float> from;
  kernels::Rounding rounding = kernels::Rounding::kFp32;
  size_t stored_steps = 0;  ///< a transform adds zeros up to `steps`
  size_t rows = 0;
  size_t steps = 0;
  StepRows<float> to;
  /// Receives the result in place of `to`, in BF16 and in packed steps; or
  /// null. Pieces have piece_steps.
  StepRows<uint16_t> packed = {};
  StepRows<int16_t> exponents = {};  ///< for accumulators, or null
  kernels::FactorExponents exponent_kind = {};

  bool quantizes = false;
  bool dequantizes = false;  ///< multiplies by all scales
  formats::Quantization quantization = {};
  formats::Format element = {};  ///< what `quantization` points to on the host
  formats::TensorState state = {};

  formats::Cell cell = {};
  size_t cells_along = 0;
  size_t cell_count = 0;
  Amax* cells = nullptr;
  /// Tiles leave the largest magnitudes of grains, of which cells consist. Null
  /// means that elements are the grains.
  Amax* grains = nullptr;
  formats::Cell grain = {1, 1};
  size_t grains_along = 0;
  /// So many threads look for the largest magnitude of a cell.
  size_t cell_threads = 1;
  /// Receive the largest magnitude of the tensor, and those of blocks of its
  /// cells; null if nobody asks.
  uint32_t* largest = nullptr;
  uint32_t* parts = nullptr;

  /// Sums over its pieces are multiplied by factors(row, piece); or null.
  StepRows<float> factors = {};
  size_t piece_steps = 0;  ///< 0: there is one piece
  size_t piece_count = 0;

  size_t tiles_end = 0;
  size_t cell_blocks_end = 0;
  size_t factors_end = 0;

  constexpr size_t tiles_along() const { return CeilOf(steps, kTileSteps); }
  constexpr size_t tile_count() const {
    return CeilOf(rows, kTileRows) * tiles_along();
  }
  constexpr size_t cell_block_count() const {
    return CeilOf(cell_count, kTileThreads / cell_threads);
  }
};

using TileTable = Table<TensorTask, &TensorTask::tiles_end>;

// The functions below take a task's quantisation, whose format must be within
// the device's reach.

constexpr formats::TensorAmax AmaxOfTensor(
    const TensorTask& task, const formats::Quantization& quantization) {
  formats::TensorAmax amax;
  if (task.largest != nullptr) amax.current = *task.largest;
  amax.history = task.state.history;
  formats::ScaleTensor(quantization, amax);
  return amax;
}

constexpr Scale ScaleOf(const formats::Quantization& quantization,
                        const Amax& cell, const formats::TensorAmax& tensor) {
  const bool skips_nan =
      quantization.non_finite == formats::NonFinitePolicy::kTe;
  return formats::ScaleOfCell(quantization, skips_nan ? cell.numbers : cell.all,
                              tensor);
}

}  // namespace isoloss::device
