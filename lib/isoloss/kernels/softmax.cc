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

void CausalSoftmaxForward(const CausalBlock& block, float scale) {
  for (size_t i = 0; i < block.p.rows(); ++i) {
    const size_t length = std::min(block.first_length + i, block.p.cols());
    float* row = block.p.Row(i);
    SoftmaxRow(row, length, scale, row);
    std::fill(row + length, row + block.p.cols(), 0.0f);
  }
}

void CausalSoftmaxBackward(const CausalBlock& block, float scale) {
  const FloatTag d;
  const auto scale_all = hn::Set(d, scale);
  for (size_t i = 0; i < block.p.rows(); ++i) {
    const size_t length = std::min(block.first_length + i, block.p.cols());
    const float* p_row = block.p.Row(i);
    float* row = block.dp.Row(i);
    const auto mean = hn::Set(d, DotInLanes(row, block.read.Row(i), length));
    ForEachVector(d, length, [&](size_t j, size_t n) HWY_ATTR {
      const auto centred = hn::Sub(LoadFirst(d, row + j, n), mean);
      const auto product = hn::Mul(LoadFirst(d, p_row + j, n), centred);
      StoreFirst(d, hn::Mul(scale_all, product), row + j, n);
    });
    std::fill(row + length, row + block.p.cols(), 0.0f);
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

void CausalSoftmaxForward(std::span<const CausalBlock> blocks, float scale,
                          Executor& executor) {
  ISOLOSS_ASSERT(scale > 0.0f);
  if (RanElsewhere(&CausalSoftmaxForward, blocks, scale, executor)) return;
  executor.ParallelFor(blocks.size(), [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(CausalSoftmaxForward)(blocks[i], scale);
  });
}

void CausalSoftmaxBackward(std::span<const CausalBlock> blocks, float scale,
                           Executor& executor) {
  constexpr const char* kWhere = "CausalSoftmaxBackward";
  for (const auto& [first_length, p, read, dp] : blocks) {
    RequireShape(kWhere, "read", read, p.rows(), p.cols());
    RequireShape(kWhere, "dp", dp, p.rows(), p.cols());
  }
  if (RanElsewhere(&CausalSoftmaxBackward, blocks, scale, executor)) return;
  executor.ParallelFor(blocks.size(), [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(CausalSoftmaxBackward)(blocks[i], scale);
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
