#include <algorithm>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/elementary.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/rmsnorm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using scalar::RmsNormBackwardLeaf;
using scalar::RmsNormForward;

#else

/// The horizontal sums of this number of rows are computed before any of them
/// is used. Each sum is a chain of dependent additions, and the chains of
/// several rows overlap.
constexpr size_t kRowGroup = 8;

/// Calls visit(first, count) for groups of at most kRowGroup rows.
template <class Visit>
HWY_INLINE void ForEachRowGroup(size_t rows, const Visit& visit) {
  for (size_t first = 0; first < rows; first += kRowGroup) {
    visit(first, std::min(kRowGroup, rows - first));
  }
}

void RmsNormForward(MatrixView<const float> x, std::span<const float> weight,
                    float eps, Rounding rounding, MatrixView<float> y,
                    std::span<float> rstd) {
  const FloatTag d;
  const auto n = static_cast<float>(x.cols());
  ForEachRowGroup(x.rows(), [&](size_t first, size_t rows) HWY_ATTR {
    for (size_t t = first; t < first + rows; ++t) {
      rstd[t] = Rsqrt(DotInLanes(x.Row(t), x.Row(t), x.cols()) / n + eps);
    }
    for (size_t t = first; t < first + rows; ++t) {
      const auto r = hn::Set(d, rstd[t]);
      ForEachVector(d, x.cols(), [&](size_t i, size_t count) HWY_ATTR {
        const auto scaled = hn::Mul(LoadFirst(d, x.Row(t) + i, count), r);
        const auto w = LoadFirst(d, weight.data() + i, count);
        StoreFirst(d, Round(d, hn::Mul(scaled, w), rounding), y.Row(t) + i,
                   count);
      });
    }
  });
}

/// Returns the sum over i of (dy_i * w_i) * x_i.
HWY_INLINE float WeightedDot(const float* dy, const float* w, const float* x,
                             size_t cols) {
  const FloatTag d;
  return SumInLanes(d, cols, [&](auto acc, size_t i, size_t n) HWY_ATTR {
    const auto g = hn::Mul(LoadFirst(d, dy + i, n), LoadFirst(d, w + i, n));
    return hn::MulAdd(g, LoadFirst(d, x + i, n), acc);
  });
}

void RmsNormBackwardLeaf(const RmsNormGradient& leaf) {
  const MatrixView<const float> x = leaf.x;
  const MatrixView<const float> dy = leaf.dy;
  const MatrixView<float> dx = leaf.dx;
  const std::span<const float> weight = leaf.weight;
  const std::span<const float> rstd = leaf.rstd;
  const std::span<float> dweight = leaf.dweight;
  const Rounding rounding = leaf.rounding;
  const bool add = leaf.add;
  const FloatTag d;
  const auto n = static_cast<float>(x.cols());
  std::fill(dweight.begin(), dweight.end(), 0.0f);
  ForEachRowGroup(x.rows(), [&](size_t first, size_t rows) HWY_ATTR {
    float c[kRowGroup];
    for (size_t k = 0; k < rows; ++k) {
      const size_t t = first + k;
      c[k] = ((rstd[t] * rstd[t]) / n) *
             WeightedDot(dy.Row(t), weight.data(), x.Row(t), x.cols());
    }
    for (size_t k = 0; k < rows; ++k) {
      const size_t t = first + k;
      const auto r = hn::Set(d, rstd[t]);
      const auto c_all = hn::Set(d, c[k]);
      ForEachVector(d, x.cols(), [&](size_t i, size_t count) HWY_ATTR {
        const auto x_i = LoadFirst(d, x.Row(t) + i, count);
        const auto dy_i = LoadFirst(d, dy.Row(t) + i, count);
        const auto g = hn::Mul(dy_i, LoadFirst(d, weight.data() + i, count));
        auto dx_i =
            Round(d, hn::Mul(r, hn::NegMulAdd(c_all, x_i, g)), rounding);
        if (add) {
          const auto sum = hn::Add(LoadFirst(d, dx.Row(t) + i, count), dx_i);
          dx_i = Round(d, sum, rounding);
        }
        const auto dw = hn::MulAdd(hn::Mul(dy_i, x_i), r,
                                   LoadFirst(d, dweight.data() + i, count));
        StoreFirst(d, dw, dweight.data() + i, count);
        StoreFirst(d, dx_i, dx.Row(t) + i, count);
      });
    }
  });
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(RmsNormForward);
HWY_EXPORT(RmsNormBackwardLeaf);

/// Folds rows, which are the leaves, up the aligned tree into row 0, column by
/// column.
void FoldLeaves(MatrixView<float> leaves) {
  for (size_t apart = 1; apart < leaves.rows(); apart *= 2) {
    for (size_t left = 0; left + apart < leaves.rows(); left += 2 * apart) {
      float* sum = leaves.Row(left);
      const float* right = leaves.Row(left + apart);
      for (size_t i = 0; i < leaves.cols(); ++i) sum[i] += right[i];
    }
  }
}

}  // namespace

void RmsNormForward(MatrixView<const float> x, std::span<const float> weight,
                    float eps, Rounding rounding, MatrixView<float> y,
                    std::span<float> rstd, Executor& executor) {
  constexpr const char* kWhere = "RmsNormForward";
  RequireLength(kWhere, "weight", weight.size(), x.cols());
  RequireShape(kWhere, "y", y, x.rows(), x.cols());
  RequireLength(kWhere, "rstd", rstd.size(), x.rows());
  if (RanElsewhere(&RmsNormForward, x, weight, eps, rounding, y, rstd,
                   executor))
    return;
  ForRowRuns(x.rows(), x.cols(), 1, executor, [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(RmsNormForward)
    (x.Rows(first, count), weight, eps, rounding, y.Rows(first, count),
     rstd.subspan(first, count));
  });
}

void RmsNormBackward(const RmsNormGradient& gradient, Executor& executor) {
  constexpr const char* kWhere = "RmsNormBackward";
  const size_t rows = gradient.x.rows();
  const size_t cols = gradient.x.cols();
  RequireLength(kWhere, "weight", gradient.weight.size(), cols);
  RequireLength(kWhere, "rstd", gradient.rstd.size(), rows);
  RequireShape(kWhere, "dy", gradient.dy, rows, cols);
  RequireShape(kWhere, "dx", gradient.dx, rows, cols);
  RequireLength(kWhere, "dweight", gradient.dweight.size(), cols);
  if (RanElsewhere(&RmsNormBackward, gradient, executor)) return;
  if (rows == 0) {
    std::fill(gradient.dweight.begin(), gradient.dweight.end(), 0.0f);
    return;
  }
  // This memory is kept from call to call, like all scratch of a training step.
  static thread_local Matrix<float> kept;
  kept.ResizeUninitialized((rows + kTokenLeaf - 1) / kTokenLeaf, cols);
  const MatrixView<float> leaves = kept.view();  // of this thread, for all
  ForRowRuns(rows, cols, kTokenLeaf, executor,
             [&](size_t run_first, size_t run_count) {
               for (size_t row = 0; row < run_count; row += kTokenLeaf) {
                 const size_t first = run_first + row;
                 HWY_DYNAMIC_DISPATCH(RmsNormBackwardLeaf)
                 (gradient.Rows(first, std::min(kTokenLeaf, run_count - row),
                                {leaves.Row(first / kTokenLeaf), cols}));
               }
             });
  FoldLeaves(leaves);
  std::copy_n(leaves.Row(0), cols, gradient.dweight.begin());
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
