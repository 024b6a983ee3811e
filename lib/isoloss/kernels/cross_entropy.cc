#include <algorithm>
#include <cmath>

#include "isoloss/kernels/elementary.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/cross_entropy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/elementary-inl.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/rows-inl.h"
#include "isoloss/kernels/softmax-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using scalar::CrossEntropy;

#else

void CrossEntropy(MatrixView<const float> logits,
                  std::span<const int32_t> labels, float grad_scale,
                  Rounding rounding, std::span<float> loss,
                  MatrixView<float> dlogits) {
  const FloatTag d;
  const size_t v = logits.cols();
  for (size_t t = 0; t < logits.rows(); ++t) {
    const float* x = logits.Row(t);
    float* dx = dlogits.empty() ? nullptr : dlogits.Row(t);
    if (labels[t] == kIgnoredLabel) {
      loss[t] = 0.0f;
      if (dx != nullptr) std::fill_n(dx, v, 0.0f);
      continue;
    }
    const auto label = static_cast<size_t>(labels[t]);
    const float max = RowMax(x, v);
    const float below_max = max - x[label];  // dx may overwrite x
    const float sum = ShiftedExponentials(x, v, max, 1.0f, dx);
    loss[t] = kernels::Log(sum) + below_max;
    if (dx == nullptr) continue;
    const float scale = grad_scale / sum;
    const float at_label = std::fma(dx[label], scale, -grad_scale);
    const auto scale_all = hn::Set(d, scale);
    ForEachVector(d, v, [&](size_t j, size_t n) HWY_ATTR {
      const auto product = hn::Mul(LoadFirst(d, dx + j, n), scale_all);
      StoreFirst(d, Round(d, product, rounding), dx + j, n);
    });
    dx[label] = Rounded(at_label, rounding);
  }
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(CrossEntropy);

void CheckArguments(MatrixView<const float> logits,
                    std::span<const int32_t> labels, std::span<float> loss,
                    MatrixView<float> dlogits) {
  constexpr const char* kWhere = "CrossEntropy";
  RequireLength(kWhere, "labels", labels.size(), logits.rows());
  RequireLength(kWhere, "loss", loss.size(), logits.rows());
  if (!dlogits.empty()) {
    RequireShape(kWhere, "dlogits", dlogits, logits.rows(), logits.cols());
  }
  for (size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] == kIgnoredLabel) continue;
    if (labels[t] < 0 || static_cast<size_t>(labels[t]) >= logits.cols()) {
      ThrowError(ErrorKind::kShape,
                 "CrossEntropy: token {} has label {}, but the vocabulary has "
                 "{} entries. Use {} for a token without a label.",
                 t, labels[t], logits.cols(), kIgnoredLabel);
    }
  }
}

}  // namespace

void CrossEntropy(MatrixView<const float> logits,
                  std::span<const int32_t> labels, float grad_scale,
                  Rounding rounding, std::span<float> loss,
                  MatrixView<float> dlogits, Executor& executor) {
  CheckArguments(logits, labels, loss, dlogits);
  if (RanElsewhere(&CrossEntropy, logits, labels, grad_scale, rounding, loss,
                   dlogits, executor))
    return;
  ForRowRuns(logits.rows(), logits.cols(), 1, executor,
             [&](size_t first, size_t count) {
               HWY_DYNAMIC_DISPATCH(CrossEntropy)
               (logits.Rows(first, count), labels.subspan(first, count),
                grad_scale, rounding, loss.subspan(first, count),
                dlogits.empty() ? dlogits : dlogits.Rows(first, count));
             });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
