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

void SumOfSquaresLeaves(std::span<const float> values, std::span<double> leaves,
                        Executor& executor) {
  RequireLength("SumOfSquaresLeaves", "leaves", leaves.size(),
                (values.size() + kSquaresLeaf - 1) / kSquaresLeaf);
  if (RanElsewhere(&SumOfSquaresLeaves, values, leaves, executor)) return;
  ForRowRuns(values.size(), 1, kSquaresLeaf, executor,
             [&](size_t run_first, size_t run_count) {
               for (size_t i = 0; i < run_count; i += kSquaresLeaf) {
                 const size_t first = run_first + i;
                 leaves[first / kSquaresLeaf] =
                     HWY_DYNAMIC_DISPATCH(SumOfSquaresLeaf)(values.subspan(
                         first, std::min(kSquaresLeaf, run_count - i)));
               }
             });
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

double SumOfSquares(std::span<const float> values, Executor& executor) {
  // This memory is kept from call to call, like all scratch of a training step.
  static thread_local std::vector<double> leaves;
  leaves.resize((values.size() + kSquaresLeaf - 1) / kSquaresLeaf);
  SumOfSquaresLeaves(values, leaves, executor);
  return AlignedTreeSum(leaves.data(), leaves.size());
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
