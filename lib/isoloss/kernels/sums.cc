#include <algorithm>
#include <atomic>
#include <vector>

#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"
#include "isoloss/kernels/tree.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/sums.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using scalar::RowDot;
using scalar::SumOfSquaresLeaf;

#else

float RowDot(std::span<const float> a, std::span<const float> b) {
  return DotInLanes(a.data(), b.data(), a.size());
}

double SumOfSquaresLeaf(std::span<const float> values) {
  const LaneTag<double> d;
  const hn::Rebind<float, LaneTag<double>> d_float;
  return SumInLanes(
      d, values.size(), [&](auto acc, size_t i, size_t n) HWY_ATTR {
        const auto x =
            hn::PromoteTo(d, LoadFirst(d_float, values.data() + i, n));
        return hn::MulAdd(x, x, acc);
      });
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(RowDot);
HWY_EXPORT(SumOfSquaresLeaf);

}  // namespace

float RowDot(std::span<const float> a, std::span<const float> b) {
  RequireLength("RowDot", "b", b.size(), a.size());
  return HWY_DYNAMIC_DISPATCH(RowDot)(a, b);
}

void SquaresOfTensors(std::span<const TensorSquares> tensors,
                      Executor& executor) {
  for (const auto& [values, leaves] : tensors) {
    RequireLength("SquaresOfTensors", "leaves", leaves.size(),
                  SquaresLeaves(values.size()));
  }
  if (RanElsewhere(&SquaresOfTensors, tensors, executor)) return;
  for (const TensorSquares& tensor : tensors) {
    ForRowRuns(tensor.values.size(), 1, kSquaresLeaf, executor,
               [&](size_t run_first, size_t run_count) {
                 for (size_t i = 0; i < run_count; i += kSquaresLeaf) {
                   const size_t first = run_first + i;
                   const size_t count = std::min(kSquaresLeaf, run_count - i);
                   tensor.leaves[first / kSquaresLeaf] = HWY_DYNAMIC_DISPATCH(
                       SumOfSquaresLeaf)(tensor.values.subspan(first, count));
                 }
               });
  }
}

void SumOfSquaresLeaves(std::span<const float> values, std::span<double> leaves,
                        Executor& executor) {
  const TensorSquares tensor = {values, leaves};
  SquaresOfTensors({&tensor, 1}, executor);
}

double SumOfTokens(std::span<const float> values) {
  const auto leaf = [&](size_t index) {
    const size_t begin = index * kTokenLeaf;
    const size_t end = std::min(values.size(), begin + kTokenLeaf);
    double sum = 0.0;
    for (size_t t = begin; t < end; ++t) sum += static_cast<double>(values[t]);
    return sum;
  };
  return AlignedTreeSum(0, (values.size() + kTokenLeaf - 1) / kTokenLeaf, leaf);
}

namespace {

float FiniteAmax(MatrixView<const float> values, Rounding rounding,
                 Executor& executor) {
  std::atomic<float> largest = 0;
  ForRowRuns(values.rows(), values.cols(), 1, executor,
             [&](size_t first, size_t count) {
               const float found =
                   scalar::FiniteAmax(values.Rows(first, count), rounding);
               float before = largest;
               while (before < found &&
                      !largest.compare_exchange_weak(before, found)) {
               }
             });
  return largest;
}

}  // namespace

void FiniteAmaxes(MatrixView<const float> values,
                  std::span<const size_t> begins, Rounding rounding,
                  std::span<float> amaxes, Executor& executor) {
  RequireLength("FiniteAmaxes", "begins", begins.size(), amaxes.size() + 1);
  if (RanElsewhere(&FiniteAmaxes, values, begins, rounding, amaxes, executor))
    return;
  for (size_t g = 0; g < amaxes.size(); ++g) {
    amaxes[g] = FiniteAmax(values.Rows(begins[g], begins[g + 1] - begins[g]),
                           rounding, executor);
  }
}

void SetSumOfSquares(std::span<const float> values, double& sum,
                     Executor& executor) {
  if (RanElsewhere(&SetSumOfSquares, values, sum, executor)) return;
  // This memory is kept from call to call, like all scratch of a training step.
  static thread_local std::vector<double> leaves;
  leaves.resize(SquaresLeaves(values.size()));
  SumOfSquaresLeaves(values, leaves, executor);
  sum = AlignedTreeSum(leaves.data(), leaves.size());
}

double SumOfSquares(std::span<const float> values, Executor& executor) {
  double sum = 0;
  SetSumOfSquares(values, sum, executor);
  return sum;
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
