// Kernels that prepare operands of products as formats::Quantize defines it, in
// tiles of a tensor: kTileRows rows by kTileSteps steps.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "isoloss/device/kernel.h"
#include "isoloss/device/prepare_tiles.h"
#include "isoloss/device/table.h"
#include "isoloss/device/tensor_task.h"
#include "isoloss/formats/rules.h"
#include "isoloss/kernels/operand_exponents.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::device {

/// Transforms the runs of a tile, if they are to be, and finds their largest
/// magnitudes.
template <typename Block>
constexpr void ScanRuns(Block& block, const Tile& tile) {
  block.Each([&block, &tile](size_t thread) {
    const Place run = Tile::RunOf(thread);
    float* const x = block.shared().x[run.row] + run.col * kRun;
    const formats::Quantization& quantization = tile.task->quantization;
    if (quantization.transforms()) {
      formats::Hadamard16(
          x, formats::NegativeElements(quantization.transform,
                                       tile.task->state.transform_key));
    }
    Amax amax;
    ISOLOSS_UNROLL
    for (size_t i = 0; i < kRun; ++i) amax.Raise(x[i]);
    block.shared().runs[run.col][run.row] = amax;
  });
}

/// Rounds a run from step `step` of a row on, in place. `amax_of(j)` is that of
/// the row's cell j.
template <typename AmaxOf>
constexpr void RoundRun(const TensorTask& task, size_t row, size_t step,
                        const AmaxOf& amax_of, float* x) {
  const formats::Format element = task.element;
  formats::Quantization quantization = task.quantization;
  quantization.element = &element;
  const formats::TensorAmax tensor = AmaxOfTensor(task, quantization);
  const bool scales = task.dequantizes || !quantization.scales_sums();
  size_t cell = step / task.cell.cols;
  Scale scale = ScaleOf(quantization, amax_of(cell), tensor);
  const size_t count = formats::Min(kRun, task.steps - step);
  std::array<uint32_t, 4> block = {};
  for (size_t i = 0; i < count; ++i) {
    if (step + i == (cell + 1) * task.cell.cols) {
      scale = ScaleOf(quantization, amax_of(++cell), tensor);
    }
    if (quantization.is_stochastic() &&
        (i == 0 || (step + i) % formats::kElementsOfRandomBlock == 0)) {
      block = formats::RandomBlockOf(task.state, row, step + i);
    }
    const formats::RandomBits random =
        quantization.is_stochastic()
            ? formats::RandomBitsIn(block, step + i, quantization.random_bits)
            : formats::RandomBits{};
    const uint32_t code = formats::CodeOf(x[i], scale, quantization, random);
    float value = formats::ValueOfCode(element, code);
    if (scales) value *= scale.decode;
    if (task.dequantizes) value *= tensor.scale.decode;
    x[i] = value;
    if (task.exponents.data != nullptr) {
      task.exponents(row, step + i) =
          static_cast<int16_t>(kernels::ExponentOfElement(
              task.exponent_kind, quantization, element, code, scale));
    }
  }
}

/// Returns formats::RoundToFormat(kE4m3Format, value, kSaturate) in a few
/// operations. A power of two whose quantum is that of the magnitude in E4M3
/// leaves the magnitude rounded when it is added and subtracted.
constexpr float RoundToE4m3(float value) {
  constexpr uint32_t kExponent = 0x7F800000;
  constexpr uint32_t kLargest = std::bit_cast<uint32_t>(448.0f);
  constexpr uint32_t kLeastNormal = std::bit_cast<uint32_t>(0x1p-6f);
  constexpr uint32_t kQuantumAbove = 20 << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & formats::fp32::kMagnitude;
  if (magnitude > formats::fp32::kInfinity) {
    return std::bit_cast<float>(formats::fp32::kNan);
  }
  const uint32_t bounded = formats::Min(magnitude, kLargest);
  const float power = std::bit_cast<float>(
      formats::Max(bounded & kExponent, kLeastNormal) + kQuantumAbove);
  const float rounded = (std::bit_cast<float>(bounded) + power) - power;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(rounded) |
                              (bits ^ magnitude));
}

/// Does what RoundRun does to a run of an MX block in E4M3. Constants make it
/// fast.
constexpr void RoundRunToE4m3(const formats::Quantization& given,
                              const Amax& amax, float* x) {
  constexpr formats::Format kElement = formats::kE4m3Format;
  formats::Quantization quantization;
  quantization.element = &kElement;
  quantization.scale_rule = given.scale_rule;
  quantization.non_finite = given.non_finite;
  const Scale scale = ScaleOf(quantization, amax, {});
  const bool is_number = !std::isnan(scale.decode);
  ISOLOSS_UNROLL
  for (size_t i = 0; i < kRun; ++i) {
    const float value = is_number ? x[i] * scale.encode
                                  : std::bit_cast<float>(formats::fp32::kNan);
    x[i] = RoundToE4m3(value) * scale.decode;
  }
}

/// Base of kernels whose blocks are tiles.
struct TileKernel {
  static constexpr size_t kThreads = kTileThreads;
  static constexpr size_t kBlocksOfProcessor = 4;
  using Shared = SharedTile;

  TileTable tiles;

  size_t blocks() const { return tiles.total; }
};

/// Quantises tensors whose cells are whole runs of a row within a tile.
/// kIsMxE4m3: cells are MX blocks in E4M3, whose exponents nobody asks for.
template <bool kIsMxE4m3>
struct QuantizeTiles : TileKernel {
  /// Rules that are no constants take more registers.
  static constexpr size_t kBlocksOfProcessor = kIsMxE4m3 ? 4 : 3;

  template <typename Block>
  constexpr void operator()(Block& block) const {
    const Tile tile(tiles.Find(block.index()));
    const TensorTask& task = *tile.task;
    LoadTile(block, tile, task.from, task.stored_steps, task.rounding);
    ScanRuns(block, tile);
    block.Each([&block, &tile, &task](size_t thread) {
      const Place run = Tile::RunOf(thread);
      if (!tile.HasRun(run)) return;
      const size_t row = tile.row + run.row;
      const size_t step = tile.step + run.col * kRun;
      const size_t runs_of_cell = task.cell.cols / kRun;
      const size_t first = run.col / runs_of_cell * runs_of_cell;
      Amax amax;
      for (size_t i = first; i < first + runs_of_cell; ++i) {
        amax.Raise(block.shared().runs[i][run.row]);
      }
      if (task.cells != nullptr && run.col == first) {
        task.cells[row * task.cells_along + step / task.cell.cols] = amax;
      }
      float* const x = block.shared().x[run.row] + run.col * kRun;
      if constexpr (kIsMxE4m3) {
        RoundRunToE4m3(task.quantization, amax, x);
      } else {
        RoundRun(
            task, row, step, [amax](size_t) { return amax; }, x);
      }
    });
    StoreTile(block, tile, /*is_rounded=*/true);
  }
};

/// Copies tensors, transformed but not rounded yet, and finds the largest
/// magnitudes of their grains.
struct GatherTiles : TileKernel {
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const Tile tile(tiles.Find(block.index()));
    const TensorTask& task = *tile.task;
    LoadTile(block, tile, task.from, task.stored_steps, task.rounding);
    if (task.quantizes) ScanRuns(block, tile);
    block.Each([&block, &tile, &task](size_t thread) {
      if (task.grains != nullptr) StoreGrain(block.shared(), tile, thread);
      const Place run = Tile::RunOf(thread);
      if (task.quantizes || task.exponents.data == nullptr) return;
      for (size_t i = 0; i < kRun && tile.HasRun(run); ++i) {
        const size_t step = tile.step + run.col * kRun + i;
        if (step >= task.steps) return;
        task.exponents(tile.row + run.row, step) =
            static_cast<int16_t>(kernels::FloatExponentOf(
                block.shared().x[run.row][run.col * kRun + i]));
      }
    });
    StoreTile(block, tile, /*is_rounded=*/!task.quantizes);
  }

 private:
  /// Stores the largest magnitude of a tile's grain.
  static constexpr void StoreGrain(const SharedTile& shared, const Tile& tile,
                                   size_t number) {
    const TensorTask& task = *tile.task;
    const size_t along = kTileSteps / task.grain.cols;
    const auto [i, j] = PlaceOf(number, along);
    const size_t row = i * task.grain.rows;
    const size_t run = j * (task.grain.cols / kRun);
    if (row >= kTileRows || !tile.HasRun({row, run})) return;
    Amax amax;
    for (size_t r = row; r < row + task.grain.rows; ++r) {
      for (size_t of = run; of < run + task.grain.cols / kRun; ++of) {
        amax.Raise(shared.runs[of][r]);
      }
    }
    task.grains[(tile.row + row) / task.grain.rows * task.grains_along +
                (tile.step + run * kRun) / task.grain.cols] = amax;
  }
};

/// Finds the largest magnitudes of cells, and of blocks of cells.
struct ReduceCells {
  static constexpr size_t kThreads = kTileThreads;
  struct Shared {
    Amax lanes[kThreads];
    uint32_t largest[kThreads];
  };

  Table<TensorTask, &TensorTask::cell_blocks_end> tasks;

  size_t blocks() const { return tasks.total; }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const auto [entry, number] = tasks.Find(block.index());
    const TensorTask& task = *entry;
    const size_t threads = task.cell_threads;
    const size_t first = number * (kThreads / threads);
    block.Each([&block, &task, first, threads](size_t thread) {
      const size_t cell = first + thread / threads;
      block.shared().lanes[thread] =
          cell < task.cell_count ? AmaxOfLane(task, cell, thread % threads)
                                 : Amax{};
    });
    block.Each([&block, &task, first, threads](size_t thread) {
      block.shared().largest[thread] = 0;
      if (thread >= kThreads / threads || first + thread >= task.cell_count) {
        return;
      }
      Amax amax;
      for (size_t i = 0; i < threads; ++i) {
        amax.Raise(block.shared().lanes[thread * threads + i]);
      }
      task.cells[first + thread] = amax;
      const bool skips_nan =
          task.quantization.non_finite == formats::NonFinitePolicy::kTe;
      if (amax.numbers < formats::fp32::kInfinity || skips_nan) {
        block.shared().largest[thread] = amax.numbers;
      }
    });
    if (task.parts == nullptr) return;
    block.Each([&block, &task, number = number](size_t thread) {
      if (thread != 0) return;
      uint32_t largest = 0;
      for (size_t i = 0; i < kThreads; ++i) {
        largest = formats::Max(largest, block.shared().largest[i]);
      }
      task.parts[number] = largest;
    });
  }

 private:
  /// Returns the largest magnitude of each cell_threads-th grain of a cell.
  static constexpr Amax AmaxOfLane(const TensorTask& task, size_t cell,
                                   size_t lane) {
    const auto [i, j] = PlaceOf(cell, task.cells_along);
    const size_t row = i * task.cell.rows;
    const size_t step = j * task.cell.cols;
    const size_t row_end = formats::Min(row + task.cell.rows, task.rows);
    const size_t step_end = formats::Min(step + task.cell.cols, task.steps);
    const size_t top = row / task.grain.rows;
    const size_t left = step / task.grain.cols;
    const size_t down = CeilOf(row_end, task.grain.rows) - top;
    const size_t along = CeilOf(step_end, task.grain.cols) - left;
    Amax amax;
    for (size_t grain = lane; grain < down * along;
         grain += task.cell_threads) {
      const auto [r, s] = PlaceOf(grain, along);
      if (task.grains == nullptr) {
        amax.Raise(task.to(top + r, left + s));
      } else {
        amax.Raise(task.grains[(top + r) * task.grains_along + left + s]);
      }
    }
    return amax;
  }
};

/// Finds the largest magnitudes of tensors. A block is a tensor.
struct ReduceTensors {
  static constexpr size_t kThreads = kTileThreads;
  struct Shared {
    uint32_t lanes[kThreads];
  };

  const TensorTask* tasks;
  size_t count;

  size_t blocks() const { return count; }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const TensorTask& task = tasks[block.index()];
    if (task.parts == nullptr) return;
    block.Each([&block, &task](size_t thread) {
      uint32_t largest = 0;
      for (size_t i = thread; i < task.cell_block_count(); i += kThreads) {
        largest = formats::Max(largest, task.parts[i]);
      }
      block.shared().lanes[thread] = largest;
    });
    block.Each([&block, &task](size_t thread) {
      if (thread != 0) return;
      uint32_t largest = 0;
      for (size_t i = 0; i < kThreads; ++i) {
        largest = formats::Max(largest, block.shared().lanes[i]);
      }
      *task.largest = largest;
    });
  }
};

/// Rounds gathered tensors in place, after their cells' largest magnitudes were
/// found.
struct RoundTiles : TileKernel {
  static constexpr size_t kBlocksOfProcessor = 3;

  template <typename Block>
  constexpr void operator()(Block& block) const {
    const Tile tile(tiles.Find(block.index()));
    const TensorTask& task = *tile.task;
    LoadTile(block, tile,
             {task.to.data, task.to.row_stride, task.to.step_stride},
             task.steps, kernels::Rounding::kFp32);
    block.Each([&block, &tile, &task](size_t thread) {
      const Place run = Tile::RunOf(thread);
      if (!tile.HasRun(run)) return;
      const size_t row = tile.row + run.row;
      const Amax* const cells =
          task.cells + row / task.cell.rows * task.cells_along;
      RoundRun(
          task, row, tile.step + run.col * kRun,
          [cells](size_t cell) { return cells[cell]; },
          block.shared().x[run.row] + run.col * kRun);
    });
    StoreTile(block, tile, /*is_rounded=*/true);
  }
};

/// Writes the factor of a row and a piece, as kernels::WriteFactors.
struct FactorElement {
  Table<TensorTask, &TensorTask::factors_end> tasks;

  constexpr void operator()(size_t i) const {
    const auto [entry, number] = tasks.Find(i);
    const TensorTask& task = *entry;
    const auto [piece, row] = PlaceOf(number, task.rows);
    const formats::Format element = task.element;
    formats::Quantization quantization = task.quantization;
    quantization.element = &element;
    const formats::TensorAmax tensor = AmaxOfTensor(task, quantization);
    float factor = tensor.scale.decode;
    if (quantization.scales_sums()) {
      const size_t cell = row / task.cell.rows * task.cells_along +
                          piece * task.piece_steps / task.cell.cols;
      factor *= ScaleOf(quantization, task.cells[cell], tensor).decode;
    }
    task.factors(row, piece) = factor;
  }
};

}  // namespace isoloss::device
