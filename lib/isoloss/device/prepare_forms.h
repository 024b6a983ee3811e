// The host lists the tensors that a device prepares. kernels::QuantizeTensors
// has its form here.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/device/executor.h"
#include "isoloss/device/prepare_kernels.h"
#include "isoloss/device/table.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/kernels/prepare.h"

namespace isoloss::device {

/// Deals out room in the device's memory in large chunks: a batch may need
/// thousands of small rooms.
template <typename Target>
class Rooms {
 public:
  explicit Rooms(Call<Target>& call) : call_(call) {}

  template <typename T>
  T* Take(size_t count) {
    const size_t bytes = RoundUp(count * sizeof(T), Memory::kAlignment);
    if (bytes > left_) {
      left_ = std::max(bytes, kChunk);
      next_ = call_.template Room<std::byte>(left_);
    }
    left_ -= bytes;
    T* const room = static_cast<T*>(static_cast<void*>(next_));
    next_ += bytes;
    return room;
  }

 private:
  static constexpr size_t kChunk = size_t{1} << 20;

  Call<Target>& call_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

/// Makes a task round to a quantisation of the host's.
inline void SetQuantization(const formats::Quantization& quantization,
                            const formats::TensorState& state,
                            TensorTask& task) {
  task.quantizes = true;
  task.quantization = quantization;
  task.element = *quantization.element;
  task.state = state;
  task.cell = formats::CellIn(quantization, task.rows, task.steps);
  task.cells_along = CeilOf(task.steps, task.cell.cols);
  task.cell_count = CeilOf(task.rows, task.cell.rows) * task.cells_along;
}

/// Prepares the tensors that were added.
template <typename Target>
class Preparation {
 public:
  Preparation(Call<Target>& call, Rooms<Target>& rooms)
      : call_(call), rooms_(rooms) {}

  void Add(const TensorTask& task) {
    if (task.rows == 0 || task.steps == 0) return;
    if (!task.quantizes) {
      plain_.push_back(task);
    } else if (FitsTiles(task)) {
      AddFactors((IsMxE4m3(task) ? e4m3_ : direct_).emplace_back(task));
    } else {
      TensorTask& added = whole_.emplace_back(task);
      if (added.packed.data != nullptr) {
        added.to = {rooms_.template Take<float>(task.rows * task.steps),
                    task.steps, 1};
      }
      SetGrains(added);
      AddFactors(added);
    }
  }

  /// Launches what was added.
  void Run() {
    std::vector<TensorTask> all;
    for (auto* list : {&plain_, &e4m3_, &direct_, &whole_, &factored_}) {
      SetEnds(*list);
      all.insert(all.end(), list->begin(), list->end());
    }
    if (all.empty()) return;
    const TensorTask* const plain =
        call_.Upload(std::span<const TensorTask>(all));
    const TensorTask* const e4m3 = plain + plain_.size();
    const TensorTask* const direct = e4m3 + e4m3_.size();
    const TensorTask* const whole = direct + direct_.size();
    const TensorTask* const factored = whole + whole_.size();
    call_.Launch(GatherTiles{{TilesOf(plain_, plain)}});
    call_.Launch(QuantizeTiles<true>{{TilesOf(e4m3_, e4m3)}});
    call_.Launch(QuantizeTiles<false>{{TilesOf(direct_, direct)}});
    call_.Launch(GatherTiles{{TilesOf(whole_, whole)}});
    call_.Launch(ReduceCells{TableOf<&TensorTask::cell_blocks_end>(
        std::span<const TensorTask>(whole_), whole)});
    if (has_largest_) call_.Launch(ReduceTensors{whole, whole_.size()});
    call_.Launch(RoundTiles{{TilesOf(whole_, whole)}});
    const auto factors = TableOf<&TensorTask::factors_end>(
        std::span<const TensorTask>(factored_), factored);
    call_.Launch(ForEachElement<FactorElement>{{factors}, factors.total});
  }

 private:
  /// Tells whether a tile sees all that the scales of its elements depend on.
  static bool FitsTiles(const TensorTask& task) {
    return task.quantization.scaling == formats::Scaling::kCurrent &&
           task.cell.rows == 1 && task.cell.cols % kRun == 0 &&
           kTileSteps % task.cell.cols == 0;
  }

  static bool IsMxE4m3(const TensorTask& task) {
    return task.quantization.is_mx() &&
           task.element.name == formats::kE4m3Format.name &&
           task.exponents.data == nullptr;
  }

  static TileTable TilesOf(const std::vector<TensorTask>& host,
                           const TensorTask* tasks) {
    return TableOf<&TensorTask::tiles_end>(std::span<const TensorTask>(host),
                                           tasks);
  }

  static void SetEnds(std::vector<TensorTask>& tasks) {
    size_t tiles = 0;
    size_t cell_blocks = 0;
    size_t factors = 0;
    for (TensorTask& task : tasks) {
      task.tiles_end = tiles += task.tile_count();
      task.cell_blocks_end = cell_blocks += task.cell_block_count();
      task.factors_end = factors += task.rows * task.piece_count;
    }
  }

  /// Chooses the largest grains of which the task's cells consist.
  void SetGrains(TensorTask& task) {
    const formats::Cell& cell = task.cell;
    const bool whole_rows =
        cell.rows >= task.rows || cell.rows % kTileRows == 0;
    const bool whole_tiles =
        cell.cols >= task.steps || cell.cols % kTileSteps == 0;
    if (whole_tiles || cell.cols % kRun == 0) {
      task.grain = {whole_rows ? kTileRows : 1,
                    whole_tiles ? kTileSteps : kRun};
      task.grains_along = CeilOf(task.steps, task.grain.cols);
      task.grains = rooms_.template Take<Amax>(
          CeilOf(task.rows, task.grain.rows) * task.grains_along);
    }
    const size_t grains =
        CeilOf(std::min(cell.rows, task.rows), task.grain.rows) *
        CeilOf(std::min(cell.cols, task.steps), task.grain.cols);
    constexpr size_t kGrainsOfThread = 4;
    task.cell_threads = std::bit_floor(
        std::clamp<size_t>(grains / kGrainsOfThread, 1, kTileThreads));
    task.cells = rooms_.template Take<Amax>(task.cell_count);
    if (!task.quantization.scales_tensor()) return;
    has_largest_ = true;
    task.largest = rooms_.template Take<uint32_t>(1);
    task.parts = rooms_.template Take<uint32_t>(task.cell_block_count());
  }

  void AddFactors(TensorTask& task) {
    if (task.factors.data == nullptr) return;
    if (task.cells == nullptr) {
      task.cells = rooms_.template Take<Amax>(task.cell_count);
    }
    factored_.push_back(task);
  }

  Call<Target>& call_;
  Rooms<Target>& rooms_;
  std::vector<TensorTask> plain_;     // which are not quantised
  std::vector<TensorTask> e4m3_;      // tile by tile: MX blocks in E4M3
  std::vector<TensorTask> direct_;    // tile by tile: the others
  std::vector<TensorTask> whole_;     // after a look at the whole tensor
  std::vector<TensorTask> factored_;  // some of the other two
  bool has_largest_ = false;
};

template <typename Target>
void QuantizeTensorsForm(std::span<const kernels::TensorToQuantize> tensors,
                         Executor& executor) {
  Call<Target> call(executor);
  Rooms<Target> rooms(call);
  Preparation<Target> preparation(call, rooms);
  for (const auto& [tensor, quantization, state] : tensors) {
    TensorTask task{.from = {tensor.data(), tensor.stride(), 1},
                    .stored_steps = tensor.cols(),
                    .rows = tensor.rows(),
                    .steps = tensor.cols(),
                    .to = {tensor.data(), tensor.stride(), 1},
                    .dequantizes = true};
    SetQuantization(*quantization, state, task);
    preparation.Add(task);
  }
  preparation.Run();
}

}  // namespace isoloss::device
