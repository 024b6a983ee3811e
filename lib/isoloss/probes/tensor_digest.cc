#include "isoloss/probes/tensor_digest.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/probes/row_places.h"

namespace isoloss::probes {
namespace {

/// Maps x one to one. Each bit of the result depends on each bit of x.
/// Source   SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014; constants
///          of Stafford's variant 13).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio

uint64_t MixPlace(const RowPlace& place) {
  uint64_t key = Mix(place.group + kGolden);
  key = Mix((key ^ place.segment) + kGolden);
  return Mix((key ^ place.position) + kGolden);
}

bool HasNan(const float* row, size_t cols) {
  constexpr int32_t kInfinity = 0x7f800000;
  int32_t found = 0;
  for (size_t i = 0; i < cols; ++i) {
    found |= (std::bit_cast<int32_t>(row[i]) & 0x7fffffff) > kInfinity ? 1 : 0;
  }
  return found != 0;
}

template <typename T>
uint64_t DigestOfRow(const T* row, size_t cols) {
  if constexpr (std::is_same_v<T, float>) {
    if (HasNan(row, cols)) {
      std::vector<float> copy(row, row + cols);
      for (float& value : copy) {
        if (value != value) value = std::numeric_limits<float>::quiet_NaN();
      }
      return DigestOf(copy.data(), cols * sizeof(float));
    }
  }
  return DigestOf(row, cols * sizeof(T));
}

template <typename T>
uint64_t DigestRowsOf(MatrixView<const T> values, const model::TensorRows& rows,
                      Executor& executor) {
  if (!rows.counts) return 0;
  const std::vector<RowRun> runs = RunsOf(rows, values.rows());
  std::vector<uint64_t> sums(static_cast<size_t>(executor.size()), 0);
  executor.ParallelFor(sums.size(), [&](size_t share) {
    const size_t first = values.rows() * share / sums.size();
    const size_t end = values.rows() * (share + 1) / sums.size();
    uint64_t sum = 0;
    ForEachPlace(runs, first, end,
                 [&](size_t row, const RowPlace& place, const RowRun&) {
                   sum += Mix(DigestOfRow(values.Row(row), values.cols()) +
                              MixPlace(place));
                 });
    sums[share] = sum;
  });
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

uint64_t DigestRows(MatrixView<const float> values,
                    const model::TensorRows& rows, Executor& executor) {
  return DigestRowsOf(values, rows, executor);
}

uint64_t DigestRows(MatrixView<const int32_t> values,
                    const model::TensorRows& rows, Executor& executor) {
  return DigestRowsOf(values, rows, executor);
}

uint64_t FinishDigest(uint64_t sum) {
  const uint64_t digest = Mix(sum + kGolden);
  return digest == 0 ? 1 : digest;
}

}  // namespace isoloss::probes
