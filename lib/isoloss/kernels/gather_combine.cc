#include <algorithm>

#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/gather_combine.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using scalar::GatherCombine;
using scalar::GatherCombineBackward;

#else

/// One token of GatherCombine adds up these slots; no addend is nullptr.
struct TokenSlots {
  MatrixView<const float> rows;
  const int32_t* index;
  const float* weights;
  size_t slots;
  const float* addend;
};

/// Computes kVectors vectors of columns from j on, the last of which holds n
/// columns. Several vectors share one look-up of a slot's index and weight.
template <size_t kVectors, bool kWeighted>
HWY_INLINE void CombineColumns(const TokenSlots& token, size_t j, size_t n,
                               Rounding rounding, float* out) {
  const FloatTag d;
  constexpr size_t kLanes = hn::MaxLanes(d);
  const auto lanes = [n](size_t v) { return v + 1 < kVectors ? kLanes : n; };
  hn::VFromD<FloatTag> acc[kVectors];
  for (auto& vector : acc) vector = hn::Zero(d);
  for (size_t k = 0; k < token.slots; ++k) {
    const float* row = token.rows.Row(static_cast<size_t>(token.index[k])) + j;
    const auto weight = hn::Set(d, kWeighted ? token.weights[k] : 1.0f);
    for (size_t v = 0; v < kVectors; ++v) {
      const auto value = LoadFirst(d, row + v * kLanes, lanes(v));
      acc[v] = kWeighted ? hn::MulAdd(weight, value, acc[v])
                         : hn::Add(acc[v], value);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    const size_t i = j + v * kLanes;
    if (token.addend != nullptr) {
      acc[v] = hn::Add(acc[v], LoadFirst(d, token.addend + i, lanes(v)));
    }
    StoreFirst(d, Round(d, acc[v], rounding), out + i, lanes(v));
  }
}

template <bool kWeighted>
HWY_INLINE void CombineToken(const TokenSlots& token, Rounding rounding,
                             size_t cols, float* out) {
  constexpr size_t kVectors = 8;
  constexpr size_t kLanes = hn::MaxLanes(FloatTag());
  size_t j = 0;
  for (; j + kVectors * kLanes <= cols; j += kVectors * kLanes) {
    CombineColumns<kVectors, kWeighted>(token, j, kLanes, rounding, out);
  }
  for (; j < cols; j += kLanes) {
    CombineColumns<1, kWeighted>(token, j, std::min(kLanes, cols - j), rounding,
                                 out);
  }
}

void GatherCombine(MatrixView<const float> rows,
                   MatrixView<const int32_t> index,
                   MatrixView<const float> weights,
                   MatrixView<const float> addend, Rounding rounding,
                   MatrixView<float> out) {
  for (size_t t = 0; t < out.rows(); ++t) {
    const TokenSlots token = {
        rows, index.Row(t), weights.empty() ? nullptr : weights.Row(t),
        index.cols(), addend.empty() ? nullptr : addend.Row(t)};
    if (token.weights != nullptr) {
      CombineToken<true>(token, rounding, out.cols(), out.Row(t));
    } else {
      CombineToken<false>(token, rounding, out.cols(), out.Row(t));
    }
  }
}

void GatherCombineBackward(MatrixView<const float> rows,
                           MatrixView<const int32_t> index,
                           MatrixView<const float> weights,
                           MatrixView<const float> dout, Rounding rounding,
                           MatrixView<float> drows,
                           MatrixView<float> dweights) {
  const FloatTag d;
  for (size_t t = 0; t < dout.rows(); ++t) {
    const float* dout_row = dout.Row(t);
    for (size_t k = 0; k < index.cols(); ++k) {
      const auto r = static_cast<size_t>(index(t, k));
      const float* row = rows.Row(r);
      float* drow = drows.Row(r);
      const auto weight = hn::Set(d, weights(t, k));
      dweights(t, k) = SumInLanes(
          d, dout.cols(), [&](auto acc, size_t i, size_t n) HWY_ATTR {
            const auto gradient = LoadFirst(d, dout_row + i, n);
            const auto value = LoadFirst(d, row + i, n);
            const auto product = hn::MulAdd(weight, gradient, hn::Zero(d));
            StoreFirst(d, Round(d, product, rounding), drow + i, n);
            return hn::MulAdd(gradient, value, acc);
          });
    }
  }
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(GatherCombine);
HWY_EXPORT(GatherCombineBackward);

}  // namespace

void GatherCombine(MatrixView<const float> rows,
                   MatrixView<const int32_t> index,
                   MatrixView<const float> weights,
                   MatrixView<const float> addend, Rounding rounding,
                   MatrixView<float> out, Executor& executor) {
  constexpr const char* kWhere = "GatherCombine";
  RequireShape(kWhere, "out", out, index.rows(), rows.cols());
  if (!weights.empty()) {
    RequireShape(kWhere, "weights", weights, index.rows(), index.cols());
  }
  if (!addend.empty()) {
    RequireShape(kWhere, "addend", addend, out.rows(), out.cols());
  }
  if (RanElsewhere(&GatherCombine, rows, index, weights, addend, rounding, out,
                   executor))
    return;
  ForRowRuns(out.rows(), out.cols() * std::max<size_t>(index.cols(), 1), 1,
             executor, [&](size_t first, size_t count) {
               RequireRows(kWhere, index.Rows(first, count), first,
                           rows.rows());
               HWY_DYNAMIC_DISPATCH(GatherCombine)
               (rows, index.Rows(first, count),
                weights.empty() ? weights : weights.Rows(first, count),
                addend.empty() ? addend : addend.Rows(first, count), rounding,
                out.Rows(first, count));
             });
}

void GatherCombineBackward(MatrixView<const float> rows,
                           MatrixView<const int32_t> index,
                           MatrixView<const float> weights,
                           MatrixView<const float> dout, Rounding rounding,
                           MatrixView<float> drows, MatrixView<float> dweights,
                           Executor& executor) {
  constexpr const char* kWhere = "GatherCombineBackward";
  RequireShape(kWhere, "weights", weights, index.rows(), index.cols());
  RequireShape(kWhere, "dout", dout, index.rows(), rows.cols());
  RequireShape(kWhere, "drows", drows, rows.rows(), rows.cols());
  RequireShape(kWhere, "dweights", dweights, index.rows(), index.cols());
  if (RanElsewhere(&GatherCombineBackward, rows, index, weights, dout, rounding,
                   drows, dweights, executor))
    return;
  ForRowRuns(
      dout.rows(), dout.cols() * index.cols(), 1, executor,
      [&](size_t first, size_t count) {
        RequireRows(kWhere, index.Rows(first, count), first, rows.rows());
        HWY_DYNAMIC_DISPATCH(GatherCombineBackward)
        (rows, index.Rows(first, count), weights.Rows(first, count),
         dout.Rows(first, count), rounding, drows, dweights.Rows(first, count));
      });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
