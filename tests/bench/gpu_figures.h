// Figures of one GPU, and how they are timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"

namespace isoloss::bench {

/// Counts results on the GPU that have other bits than on the CPU; NaNs are
/// alike.
struct Differences {
  size_t wrong = 0;
  size_t compared = 0;

  void Compare(std::span<const float> gpu, std::span<const float> cpu);
  void Compare(std::span<const double> gpu, std::span<const double> cpu);
};

/// The table has a line of it.
struct Figure {
  std::string name;
  double value;  ///< what the bar is about; 0: it is not measured
  double bar;    ///< the least
  std::string absolute;
  Differences differences;
};

/// The GPU does something again and again; `wait` is for all that was begun.
struct Work {
  std::function<void()> begin;
  std::function<void()> wait;
};

/// Returns the median seconds of one call of each. Samples alternate, so that
/// the clock of the GPU is the same for all.
std::vector<double> Seconds(std::span<const Work> works);

/// Returns work in the order of an executor's kernels.
Work WorkOf(Executor& gpu, std::function<void()> begin);

/// Returns a copy in the memory of an executor; room, zero at first; a row as
/// the host reads it.
Matrix<float> CopyFor(Executor& executor, const Matrix<float>& values);
Matrix<float> RoomFor(Executor& executor, size_t rows, size_t cols);
std::vector<float> HostRow(const Matrix<float>& values, size_t row);

/// Measures products of BF16 and MXFP8 operands, packed and quantised in the
/// call, beside cuBLAS in FP32.
std::vector<Figure> ProductFigures(Executor& gpu);
/// Measures the experts of a layer of the 16B, as one batch.
std::vector<Figure> ExpertFigures(Executor& gpu);
/// Measures products on tensor cores beside cuBLAS in BF16, if it is known how
/// those of the GPU add.
std::vector<Figure> TensorCoreFigures(Executor& gpu);
/// Measures training steps of presets.
std::vector<Figure> StepFigures(Executor& gpu);
/// Measures row-wise operations at 65536 x 1024 in bytes a second, beside a
/// copy.
std::vector<Figure> RowFigures(Executor& gpu);

}  // namespace isoloss::bench
