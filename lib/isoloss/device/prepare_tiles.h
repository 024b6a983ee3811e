// Tiles of tensors that are prepared: how a block loads and stores one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/device/kernel.h"
#include "isoloss/device/table.h"
#include "isoloss/device/tensor_task.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/rules.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::device {

struct SharedTile {
  float x[kTileRows][kTileSteps + 1];  // neighbours below are in another bank
  Amax runs[kRunsOfTile][kTileRows];
};

struct Tile {
  const TensorTask* task;
  size_t row;
  size_t step;

  explicit constexpr Tile(const TileTable::Share& share)
      : task(share.entry),
        row(share.number / share.entry->tiles_along() * kTileRows),
        step(share.number % share.entry->tiles_along() * kTileSteps) {}

  /// Returns the run of a thread.
  static constexpr Place RunOf(size_t thread) {
    return {thread % kTileRows, thread / kTileRows};
  }
  constexpr bool HasRun(const Place& run) const {
    return row + run.row < task->rows && step + run.col * kRun < task->steps;
  }
};

/// A thread's elements of a tile, one in each of kRun turns, which are kTurn
/// rows or steps apart. Neighbouring threads have neighbours in memory.
template <bool kAlongSteps, typename T>
struct TileTurns {
  static constexpr uint32_t kAlong = kAlongSteps ? kTileSteps : kTileRows;
  static constexpr uint32_t kTurn = kTileThreads / kAlong;
  static constexpr uint32_t kStride = kTileSteps + 1;
  static constexpr uint32_t kPlacesApart = kTurn * (kAlongSteps ? kStride : 1);

  T* first;
  uint32_t apart;
  uint32_t count;  ///< of turns with an element in the tensor
  uint32_t place;  ///< of the first one in SharedTile::x

  /// The tensor has `rows` and `steps`.
  constexpr TileTurns(const Tile& tile, const StepRows<T>& tensor, size_t rows,
                      size_t steps, size_t thread) {
    const uint32_t along = static_cast<uint32_t>(thread) % kAlong;
    const uint32_t across = static_cast<uint32_t>(thread) / kAlong;
    const uint32_t row = kAlongSteps ? across : along;
    const uint32_t step = kAlongSteps ? along : across;
    const uint32_t rows_left = LeftOf(rows, tile.row);
    const uint32_t steps_left = LeftOf(steps, tile.step);
    const uint32_t left = kAlongSteps ? rows_left : steps_left;
    const bool has_any = row < rows_left && step < steps_left;
    first = tensor.At(tile.row + row, tile.step + step);
    apart = kTurn * static_cast<uint32_t>(kAlongSteps ? tensor.row_stride
                                                      : tensor.step_stride);
    count = has_any ? (left - across + (kTurn - 1)) / kTurn : 0;
    place = row * kStride + step;
  }

 private:
  /// Returns how many of `count` the tile has at `begin`, at most its extent.
  static constexpr uint32_t LeftOf(size_t count, size_t begin) {
    if (begin >= count) return 0;
    return static_cast<uint32_t>(formats::Min(count - begin, kTileSteps));
  }
};

template <bool kAlongSteps>
constexpr void LoadTurns(const TileTurns<kAlongSteps, const float>& turns,
                         kernels::Rounding rounding, SharedTile& shared) {
  // All loads are on their way before the first one is waited for.
  float values[kRun];
  const float* from = turns.first;
  ISOLOSS_UNROLL
  for (uint32_t i = 0; i < kRun; ++i) {
    values[i] = i < turns.count ? *from : 0.0f;
    from += turns.apart;
  }
  if (rounding != kernels::Rounding::kFp32) {
    ISOLOSS_UNROLL
    for (float& value : values) value = kernels::Rounded(value, rounding);
  }
  float* const place = &shared.x[0][0] + turns.place;
  ISOLOSS_UNROLL
  for (uint32_t i = 0; i < kRun; ++i) {
    place[i * turns.kPlacesApart] = values[i];
  }
}

constexpr void Store(float value, float& to) { to = value; }
constexpr void Store(float value, uint16_t& to) {
  to = formats::EncodeBf16(value);
}

template <bool kAlongSteps, typename T>
constexpr void StoreTurns(const TileTurns<kAlongSteps, T>& turns,
                          const SharedTile& shared) {
  float values[kRun];
  const float* const place = &shared.x[0][0] + turns.place;
  ISOLOSS_UNROLL
  for (uint32_t i = 0; i < kRun; ++i) {
    values[i] = place[i * turns.kPlacesApart];
  }
  T* to = turns.first;
  ISOLOSS_UNROLL
  for (uint32_t i = 0; i < kRun; ++i) {
    if (i < turns.count) Store(values[i], *to);
    to += turns.apart;
  }
}

/// Stores turns in packed steps, and zeros behind the last step of a piece.
constexpr void StorePacked(const Tile& tile, const SharedTile& shared,
                           size_t thread) {
  using Turns = TileTurns<true, uint16_t>;
  const TensorTask& task = *tile.task;
  const size_t step = tile.step + thread % Turns::kAlong;
  const size_t place = PackedStepOf(step, task.piece_steps);
  StepRows<uint16_t> to = task.packed;
  to.data += place - step;
  const Turns turns(tile, to, task.rows, task.steps, thread);
  StoreTurns(turns, shared);
  const size_t next = PackedStepOf(step + 1, task.piece_steps);
  if (next == place + 1 && step + 1 < task.steps) return;
  const size_t zeros = RoundUp(place + 1, kPackedSteps) - (place + 1);
  for (uint32_t i = 0; i < kRun && i < turns.count; ++i) {
    for (size_t zero = 1; zero <= zeros; ++zero) {
      turns.first[i * turns.apart + zero] = 0;
    }
  }
}

template <typename Block>
constexpr void LoadTile(Block& block, const Tile& tile,
                        const StepRows<const float>& from, size_t stored_steps,
                        kernels::Rounding rounding) {
  block.Each([&block, &tile, from, stored_steps, rounding](size_t thread) {
    const size_t rows = tile.task->rows;
    if (from.along_steps()) {
      LoadTurns<true>({tile, from, rows, stored_steps, thread}, rounding,
                      block.shared());
    } else {
      LoadTurns<false>({tile, from, rows, stored_steps, thread}, rounding,
                       block.shared());
    }
  });
}

/// Stores a tile in the task's result, or where it waits to be rounded.
template <typename Block>
constexpr void StoreTile(Block& block, const Tile& tile, bool is_rounded) {
  block.Each([&block, &tile, is_rounded](size_t thread) {
    const TensorTask& task = *tile.task;
    const StepRows<float> to = task.to;
    const size_t rows = task.rows;
    const size_t steps = task.steps;
    if (is_rounded && task.packed.data != nullptr) {
      StorePacked(tile, block.shared(), thread);
    } else if (to.along_steps()) {
      StoreTurns<true, float>({tile, to, rows, steps, thread}, block.shared());
    } else {
      StoreTurns<false, float>({tile, to, rows, steps, thread}, block.shared());
    }
  });
}

}  // namespace isoloss::device
