#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/rowwise_scalar.h"

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

#else

void GatherCombine(MatrixView<const float> rows,
                   MatrixView<const int32_t> index,
                   MatrixView<const float> weights,
                   MatrixView<const float> addend, Rounding rounding,
                   MatrixView<float> out) {
  const FloatTag d;
  for (size_t t = 0; t < out.rows(); ++t) {
    ForEachVector(d, out.cols(), [&](size_t j, size_t n) HWY_ATTR {
      auto acc = hn::Zero(d);
      for (size_t k = 0; k < index.cols(); ++k) {
        const float* row = rows.Row(static_cast<size_t>(index(t, k)));
        const auto value = LoadFirst(d, row + j, n);
        acc = weights.empty()
                  ? hn::Add(acc, value)
                  : hn::MulAdd(hn::Set(d, weights(t, k)), value, acc);
      }
      if (!addend.empty()) {
        acc = hn::Add(acc, LoadFirst(d, addend.Row(t) + j, n));
      }
      StoreFirst(d, Round(d, acc, rounding), out.Row(t) + j, n);
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

HWY_EXPORT(GatherCombine);

void CheckArguments(MatrixView<const float> rows,
                    MatrixView<const int32_t> index,
                    MatrixView<const float> weights,
                    MatrixView<const float> addend, MatrixView<float> out) {
  constexpr const char* kWhere = "GatherCombine";
  RequireShape(kWhere, "out", out, index.rows(), rows.cols());
  if (!weights.empty()) {
    RequireShape(kWhere, "weights", weights, index.rows(), index.cols());
  }
  if (!addend.empty()) {
    RequireShape(kWhere, "addend", addend, out.rows(), out.cols());
  }
  for (size_t t = 0; t < index.rows(); ++t) {
    for (size_t k = 0; k < index.cols(); ++k) {
      const int32_t row = index(t, k);
      if (row < 0 || static_cast<size_t>(row) >= rows.rows()) {
        ThrowError(ErrorKind::kShape,
                   "GatherCombine: slot {} of token {} is row {}, but there "
                   "are {} rows. Pass the index of an existing row.",
                   k, t, row, rows.rows());
      }
    }
  }
}

}  // namespace

void GatherCombine(MatrixView<const float> rows,
                   MatrixView<const int32_t> index,
                   MatrixView<const float> weights,
                   MatrixView<const float> addend, Rounding rounding,
                   MatrixView<float> out, ThreadTeam& team) {
  CheckArguments(rows, index, weights, addend, out);
  ForRowRuns(out.rows(), out.cols() * std::max<size_t>(index.cols(), 1), 1,
             team, [&](size_t first, size_t count) {
               HWY_DYNAMIC_DISPATCH(GatherCombine)
               (rows, index.Rows(first, count),
                weights.empty() ? weights : weights.Rows(first, count),
                addend.empty() ? addend : addend.Rows(first, count), rounding,
                out.Rows(first, count));
             });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
