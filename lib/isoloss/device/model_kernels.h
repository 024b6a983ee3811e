// Kernels of a training step that are neither products nor row-wise operations
// of a layer: the gradient of the embedding, the measured update, and the
// largest magnitudes that delayed scaling looks back to.
#pragma once

#include <cmath>
#include <cstddef>

#include "isoloss/base/matrix.h"
#include "isoloss/device/element_kernels.h"
#include "isoloss/device/kernel.h"
#include "isoloss/device/row_kernels.h"
#include "isoloss/device/table.h"
#include "isoloss/kernels/elements.h"
#include "isoloss/kernels/lanes.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::device {

/// Token ids that occur in a batch, with their ascending positions.
struct IdGroups {
  const size_t* ids;
  const size_t* begins;  ///< of each id's positions
  const size_t* ends;
  const size_t* positions;
  size_t count;
};

/// An element is a column of one token id. A sequence without the id adds +0,
/// which changes no sum, since a chain from +0 is never -0.
struct EmbeddingGradientElement {
  IdGroups groups;
  const size_t* sequence_ends;
  size_t sequences;
  Input dx;
  Output dtable;

  constexpr void operator()(size_t i) const {
    const auto [group, j] = PlaceOf(i, dx.cols());
    kernels::AlignedFold<float> fold;
    size_t next = groups.begins[group];
    for (size_t sequence = 0; sequence < sequences; ++sequence) {
      float sum = 0.0f;
      for (; next < groups.ends[group] &&
             groups.positions[next] < sequence_ends[sequence];
           ++next) {
        sum += dx(groups.positions[next], j);
      }
      fold.Push(sum);
    }
    dtable(groups.ids[group], j) += fold.Finish();
  }
};

/// Writes the largest finite magnitude of each rounded row.
struct FiniteAmaxRows : RowKernel {
  Input values;
  Rounding rounding;
  float* amaxes;

  size_t blocks() const { return CeilOf(values.rows(), kRowsOfBlock); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    block.Each([this, &block](size_t thread) {
      const auto [local, lane, row] = RowPlaceOf(block, thread);
      if (row >= values.rows()) return;
      float largest = 0.0f;
      for (size_t j = lane; j < values.cols(); j += kLanes) {
        largest = kernels::LargerFinite(largest, values(row, j), rounding);
      }
      block.shared().lanes[local][lane] = largest;
    });
    block.Each([this, &block](size_t thread) {
      const auto [local, lane, row] = RowPlaceOf(block, thread);
      if (row >= values.rows() || lane != 0) return;
      float largest = 0.0f;
      for (size_t i = 0; i < kLanes; ++i) {
        largest = kernels::Larger(largest, block.shared().lanes[local][i]);
      }
      amaxes[row] = largest;
    });
  }
};

/// A block finds the largest number of a group of consecutive rows.
struct LargestOfGroups {
  static constexpr size_t kThreads = 256;
  struct Shared {
    float largest[kThreads];
  };

  const float* rows;
  const size_t* begins;
  size_t groups;
  float* amaxes;

  size_t blocks() const { return groups; }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    block.Each([this, &block](size_t thread) {
      const size_t end = begins[block.index() + 1];
      float largest = 0.0f;
      for (size_t row = begins[block.index()] + thread; row < end;
           row += kThreads) {
        largest = kernels::Larger(largest, rows[row]);
      }
      block.shared().largest[thread] = largest;
    });
    block.Each([this, &block](size_t thread) {
      if (thread != 0) return;
      float largest = 0.0f;
      for (size_t i = 0; i < kThreads; ++i) {
        largest = kernels::Larger(largest, block.shared().largest[i]);
      }
      amaxes[block.index()] = largest;
    });
  }
};

/// Leaves of several tensors are one list: those of a tensor end at `end`.
struct SquaresTask {
  const float* values;
  size_t count;
  size_t end;
};

/// A leaf has the elements [first, end) of its tensor.
struct LeafElements {
  size_t first;
  size_t end;
};

constexpr LeafElements ElementsOfLeaf(size_t leaf, size_t count) {
  constexpr size_t kLeaf = kernels::kSquaresLeaf;
  const size_t first = leaf * kLeaf;
  return {first, count - first < kLeaf ? count : first + kLeaf};
}

/// A row is a leaf, summed in FP64.
struct SquaresOfLeaves {
  static constexpr size_t kThreads = kRowThreads;
  struct Shared {
    double lanes[kRowsOfBlock][kLanes];
  };

  Table<SquaresTask, &SquaresTask::end> tasks;
  double* leaves;

  size_t blocks() const { return CeilOf(tasks.total, kRowsOfBlock); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    FoldRows(
        block, tasks.total,
        [this](size_t number, size_t lane) {
          const auto [task, leaf] = tasks.Find(number);
          const auto [first, end] = ElementsOfLeaf(leaf, task->count);
          const auto of = [values = task->values + first](size_t i) {
            return static_cast<double>(values[i]);
          };
          return kernels::SumOfLane<double>(lane, end - first, of, of);
        },
        [this](size_t number, size_t, double sum) { leaves[number] = sum; });
  }
};

/// Blocks fold runs of numbers up the aligned tree.
struct FoldRuns {
  static constexpr size_t kThreads = 256;
  static constexpr size_t kRunLength = 2 * kThreads;
  struct Shared {
    double nodes[kRunLength];
  };

  const double* numbers;
  size_t count;
  double* roots;  ///< [blocks]

  size_t blocks() const { return CeilOf(count, kRunLength); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const size_t first = block.index() * kRunLength;
    const size_t left = count - first;
    block.Each([this, first, left, &block](size_t thread) {
      for (size_t i = thread; i < kRunLength && i < left; i += kThreads) {
        block.shared().nodes[i] = numbers[first + i];
      }
    });
    for (size_t apart = 1; apart < kRunLength; apart *= 2) {
      block.Each([left, apart, &block](size_t thread) {
        const size_t node = thread * 2 * apart;
        if (node + apart >= kRunLength || node + apart >= left) return;
        block.shared().nodes[node] += block.shared().nodes[node + apart];
      });
    }
    block.Each([this, &block](size_t thread) {
      if (thread == 0) roots[block.index()] = block.shared().nodes[0];
    });
  }
};

/// An element is a parameter.
struct AdamWElement {
  kernels::AdamWScalars scalars;
  const float* gradient;
  float* parameter;
  float* first_moment;
  float* second_moment;

  constexpr void operator()(size_t i) const {
    kernels::UpdateByAdamW(scalars, gradient[i], parameter[i], first_moment[i],
                           second_moment[i]);
  }
};

/// Leaves of several updates are one list: those of an update end at `end`.
struct AdamWTask {
  AdamWElement update;
  float* gradient;
  bool keeps_parameter;
  size_t count;
  size_t end;
};

/// A row is a leaf. Each of its lanes updates its elements and adds up their
/// squares.
struct MeasuredAdamWLeaves {
  static constexpr size_t kThreads = kRowThreads;
  struct Shared {
    double parameter[kRowsOfBlock][kLanes];
    double update[kRowsOfBlock][kLanes];
  };

  Table<AdamWTask, &AdamWTask::end> tasks;
  double* parameter_squares;
  double* update_squares;

  size_t blocks() const { return CeilOf(tasks.total, kRowsOfBlock); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    block.Each([this, &block](size_t thread) {
      const auto [local, lane, number] = RowPlaceOf(block, thread);
      if (number >= tasks.total) return;
      const auto [task, leaf] = tasks.Find(number);
      UpdateLane(*task, ElementsOfLeaf(leaf, task->count), lane,
                 block.shared().parameter[local][lane],
                 block.shared().update[local][lane]);
    });
    block.Each([this, &block](size_t thread) {
      const auto [local, lane, number] = RowPlaceOf(block, thread);
      if (number >= tasks.total || lane != 0) return;
      Shared& shared = block.shared();
      parameter_squares[number] = kernels::FoldLanes(shared.parameter[local]);
      update_squares[number] = kernels::FoldLanes(shared.update[local]);
    });
  }

 private:
  static constexpr void UpdateLane(const AdamWTask& task,
                                   const LeafElements& elements, size_t lane,
                                   double& parameter_sum, double& update_sum) {
    double before_squares = 0;
    double change_squares = 0;
    for (size_t i = elements.first + lane; i < elements.end; i += kLanes) {
      const float before = task.update.parameter[i];
      task.update(i);
      if (task.keeps_parameter) task.gradient[i] = before;
      const auto old = static_cast<double>(before);
      const auto change =
          static_cast<double>(task.update.parameter[i] - before);
      before_squares = std::fma(old, old, before_squares);
      change_squares = std::fma(change, change, change_squares);
    }
    parameter_sum = before_squares;
    update_sum = change_squares;
  }
};

}  // namespace isoloss::device
