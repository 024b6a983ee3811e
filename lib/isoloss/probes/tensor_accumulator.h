// Computes statistics of one tensor of the whole batch from the pieces that
// processes hold.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "isoloss/base/exact_sum.h"
#include "isoloss/base/executor.h"
#include "isoloss/model/tap.h"
#include "isoloss/probes/direction_sums.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::probes {

/// Holds the statistics of runlog/tensor_statistics.def, NaN where not
/// defined, and how many blocks got each E8M0 byte.
struct TensorStatistics {
  std::array<double, runlog::kTensorStatisticCount> values;
  std::array<int32_t, runlog::kScaleBytes> e8m0_histogram{};
  std::array<int32_t, runlog::kScaleBytes> e8m0_histogram_columnwise{};
};

/// These numbers of a tensor are added up, or their largest is taken. A number
/// of which the smallest is wanted is negated.
struct TensorSums {
  ExactSum sum, magnitudes, squares;
  int64_t elements = 0;
  int64_t zeros = 0;
  int64_t nonfinite = 0;
  double max = -std::numeric_limits<double>::infinity();
  double negated_min = -std::numeric_limits<double>::infinity();
  double negated_smallest = -std::numeric_limits<double>::infinity();
  DirectionSums rowwise;
  DirectionSums columnwise;

  void Add(const TensorSums& other);
};

/// Counts are integers. A sum is the exact sum, rounded once, of parts that no
/// rank, process or thread divides: FP64 sums in 16 lanes over runs of one row
/// of at most 1024 elements. So merging is exact, in any order, and bits depend
/// on the tensor only. Operands that are no MX blocks are quantised tensor by
/// tensor, as formats::Quantize defines it; no rank divides these either.
class TensorAccumulator {
 public:
  /// Adds the rows that this process holds.
  void Add(const model::Tensor& tensor, Executor& executor);

  /// Appends all numbers: integers that processes add up and numbers of which
  /// they take the largest. Each process appends equally many.
  void Pack(std::vector<int64_t>& sums, std::vector<double>& maxima) const;
  /// Takes over Pack's numbers after the exchange, from the front of both
  /// spans, which it shortens.
  void Unpack(std::span<const int64_t>& sums, std::span<const double>& maxima);

  TensorStatistics Finish() const;

 private:
  TensorSums sums_;
};

}  // namespace isoloss::probes
