#include <algorithm>

#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/softmax.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/elementary-inl.h"
#include "isoloss/kernels/rows-inl.h"
#include "isoloss/kernels/softmax-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using scalar::CausalSoftmaxBackward;
using scalar::CausalSoftmaxForward;
using scalar::RowSoftmax;

#else

void SoftmaxRow(const float* x, size_t count, float scale, float* p) {
  const FloatTag d;
  const float max = RowMax(x, count);
  const float sum = ShiftedExponentials(x, count, max, scale, p);
  const auto inverse = hn::Set(d, 1.0f / sum);
  ForEachVector(d, count, [&](size_t i, size_t n) HWY_ATTR {
    StoreFirst(d, hn::Mul(LoadFirst(d, p + i, n), inverse), p + i, n);
  });
}

void CausalSoftmaxForward(size_t first_length, MatrixView<float> p,
                          float scale) {
  for (size_t i = 0; i < p.rows(); ++i) {
    const size_t length = std::min(first_length + i, p.cols());
    float* row = p.Row(i);
    SoftmaxRow(row, length, scale, row);
    std::fill(row + length, row + p.cols(), 0.0f);
  }
}

void CausalSoftmaxBackward(size_t first_length, MatrixView<const float> p,
                           MatrixView<const float> read, float scale,
                           MatrixView<float> dp) {
  const FloatTag d;
  const auto scale_all = hn::Set(d, scale);
  for (size_t i = 0; i < p.rows(); ++i) {
    const size_t length = std::min(first_length + i, p.cols());
    const float* p_row = p.Row(i);
    float* row = dp.Row(i);
    const auto mean = hn::Set(d, DotInLanes(row, read.Row(i), length));
    ForEachVector(d, length, [&](size_t j, size_t n) HWY_ATTR {
      const auto centred = hn::Sub(LoadFirst(d, row + j, n), mean);
      const auto product = hn::Mul(LoadFirst(d, p_row + j, n), centred);
      StoreFirst(d, hn::Mul(scale_all, product), row + j, n);
    });
    std::fill(row + length, row + p.cols(), 0.0f);
  }
}

void RowSoftmax(MatrixView<const float> x, MatrixView<float> out) {
  for (size_t t = 0; t < x.rows(); ++t) {
    SoftmaxRow(x.Row(t), x.cols(), 1.0f, out.Row(t));
  }
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(CausalSoftmaxForward);
HWY_EXPORT(CausalSoftmaxBackward);
HWY_EXPORT(RowSoftmax);

}  // namespace

void CausalSoftmaxForward(const ScoreWave& wave, std::span<float> scores,
                          float scale, Executor& executor) {
  ISOLOSS_ASSERT(scale > 0.0f);
  wave.RequireScores("CausalSoftmaxForward", scores.size());
  if (RanElsewhere(&CausalSoftmaxForward, wave, scores, scale, executor)) {
    return;
  }
  executor.ParallelFor(wave.blocks.size(), [&](size_t i) {
    const ScoreBlock& block = wave.blocks[i];
    HWY_DYNAMIC_DISPATCH(CausalSoftmaxForward)
    (block.first + 1, block.Of(scores), scale);
  });
}

void CausalSoftmaxBackward(const ScoreWave& wave,
                           const CausalSoftmaxGradient& gradient, float scale,
                           Executor& executor) {
  const auto& [p, read, dp] = gradient;
  for (const size_t count : {p.size(), read.size(), dp.size()}) {
    wave.RequireScores("CausalSoftmaxBackward", count);
  }
  if (RanElsewhere(&CausalSoftmaxBackward, wave, gradient, scale, executor)) {
    return;
  }
  executor.ParallelFor(wave.blocks.size(), [&](size_t i) {
    const ScoreBlock& block = wave.blocks[i];
    HWY_DYNAMIC_DISPATCH(CausalSoftmaxBackward)
    (block.first + 1, block.Of(gradient.p), block.Of(gradient.read), scale,
     block.Of(gradient.dp));
  });
}

void RowSoftmax(MatrixView<const float> x, MatrixView<float> out,
                Executor& executor) {
  RequireShape("RowSoftmax", "out", out, x.rows(), x.cols());
  if (RanElsewhere(&RowSoftmax, x, out, executor)) return;
  ForRowRuns(x.rows(), x.cols(), 1, executor, [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(RowSoftmax)
    (x.Rows(first, count), out.Rows(first, count));
  });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
