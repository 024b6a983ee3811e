#include <algorithm>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/elementary.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/rowwise_scalar.h"

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

void RmsNormForward(MatrixView<const float> x, std::span<const float> weight,
                    float eps, Rounding rounding, MatrixView<float> y,
                    std::span<float> rstd) {
  const FloatTag d;
  const auto n = static_cast<float>(x.cols());
  for (size_t t = 0; t < x.rows(); ++t) {
    const float* in = x.Row(t);
    float* out = y.Row(t);
    const float r = Rsqrt(DotInLanes(in, in, x.cols()) / n + eps);
    const auto r_all = hn::Set(d, r);
    ForEachVector(d, x.cols(), [&](size_t i, size_t count) HWY_ATTR {
      const auto scaled = hn::Mul(LoadFirst(d, in + i, count), r_all);
      const auto w = LoadFirst(d, weight.data() + i, count);
      StoreFirst(d, Round(d, hn::Mul(scaled, w), rounding), out + i, count);
    });
    rstd[t] = r;
  }
}

void RmsNormBackwardLeaf(MatrixView<const float> x,
                         std::span<const float> weight,
                         std::span<const float> rstd,
                         MatrixView<const float> dy, Rounding rounding,
                         MatrixView<float> dx, std::span<float> dweight) {
  const FloatTag d;
  const auto n = static_cast<float>(x.cols());
  const float* w = weight.data();
  float* dw = dweight.data();
  std::fill(dweight.begin(), dweight.end(), 0.0f);
  for (size_t t = 0; t < x.rows(); ++t) {
    const float* x_row = x.Row(t);
    const float* dy_row = dy.Row(t);
    float* dx_row = dx.Row(t);
    const auto g = [&](size_t i, size_t count) HWY_ATTR {
      return hn::Mul(LoadFirst(d, dy_row + i, count),
                     LoadFirst(d, w + i, count));
    };
    const float dot =
        SumInLanes(d, x.cols(), [&](auto acc, size_t i, size_t count) HWY_ATTR {
          return hn::MulAdd(g(i, count), LoadFirst(d, x_row + i, count), acc);
        });
    const auto r = hn::Set(d, rstd[t]);
    const auto c = hn::Set(d, ((rstd[t] * rstd[t]) / n) * dot);
    ForEachVector(d, x.cols(), [&](size_t i, size_t count) HWY_ATTR {
      const auto x_i = LoadFirst(d, x_row + i, count);
      const auto dy_i = LoadFirst(d, dy_row + i, count);
      const auto dx_i = hn::Mul(r, hn::NegMulAdd(c, x_i, g(i, count)));
      const auto dw_i =
          hn::MulAdd(hn::Mul(dy_i, x_i), r, LoadFirst(d, dw + i, count));
      StoreFirst(d, dw_i, dw + i, count);
      StoreFirst(d, Round(d, dx_i, rounding), dx_row + i, count);
    });
  }
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

/// Folds rows, the leaves, up the aligned tree into row 0, column by column.
void FoldLeaves(Matrix<float>& leaves) {
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
                    std::span<float> rstd, ThreadTeam& team) {
  constexpr const char* kWhere = "RmsNormForward";
  RequireLength(kWhere, "weight", weight.size(), x.cols());
  RequireShape(kWhere, "y", y, x.rows(), x.cols());
  RequireLength(kWhere, "rstd", rstd.size(), x.rows());
  ForRowRuns(x.rows(), x.cols(), 1, team, [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(RmsNormForward)
    (x.Rows(first, count), weight, eps, rounding, y.Rows(first, count),
     rstd.subspan(first, count));
  });
}

void RmsNormBackward(MatrixView<const float> x, std::span<const float> weight,
                     std::span<const float> rstd, MatrixView<const float> dy,
                     Rounding rounding, MatrixView<float> dx,
                     std::span<float> dweight, ThreadTeam& team) {
  constexpr const char* kWhere = "RmsNormBackward";
  RequireLength(kWhere, "weight", weight.size(), x.cols());
  RequireLength(kWhere, "rstd", rstd.size(), x.rows());
  RequireShape(kWhere, "dy", dy, x.rows(), x.cols());
  RequireShape(kWhere, "dx", dx, x.rows(), x.cols());
  RequireLength(kWhere, "dweight", dweight.size(), x.cols());
  // At least one leaf: no token gives a gradient of zeros.
  const size_t leaf_count = (x.rows() + kTokenLeaf - 1) / kTokenLeaf;
  Matrix<float> leaves(std::max<size_t>(leaf_count, 1), x.cols());
  ForRowRuns(x.rows(), x.cols(), kTokenLeaf, team,
             [&](size_t run_first, size_t run_count) {
               for (size_t row = 0; row < run_count; row += kTokenLeaf) {
                 const size_t first = run_first + row;
                 const size_t count = std::min(kTokenLeaf, run_count - row);
                 HWY_DYNAMIC_DISPATCH(RmsNormBackwardLeaf)
                 (x.Rows(first, count), weight, rstd.subspan(first, count),
                  dy.Rows(first, count), rounding, dx.Rows(first, count),
                  {leaves.Row(first / kTokenLeaf), x.cols()});
               }
             });
  FoldLeaves(leaves);
  std::copy_n(leaves.Row(0), x.cols(), dweight.begin());
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
