#include "isoloss/kernels/fused_gemm.h"

#include <algorithm>
#include <cstdint>

#include "isoloss/kernels/fused_sum.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/fused_gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/fused_strip-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

bool TakesOnTarget(const Accumulator& /*accumulator*/) { return false; }

size_t PanelLanesOnTarget() { return 1; }

void PackPanelOnTarget(size_t /*panel*/, PreparedOperand& /*b*/) {}

void SumsOnTarget(const FusedProduct& /*product*/, Matrix<float>& /*sums*/) {}

#else

bool TakesOnTarget(const Accumulator& accumulator) {
  return FusedAdder::Takes(accumulator);
}

size_t PanelLanesOnTarget() { return kPanelLanes; }

void PackPanelOnTarget(size_t panel, PreparedOperand& b) {
  PackRight(panel, b);
}

void SumsOnTarget(const FusedProduct& product, Matrix<float>& sums) {
  static thread_local FusedStrip strip;
  strip.Compute(product, sums);
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(TakesOnTarget);
HWY_EXPORT(PanelLanesOnTarget);
HWY_EXPORT(PackPanelOnTarget);
HWY_EXPORT(SumsOnTarget);

}  // namespace

bool HasFusedPanels(const Accumulator* accumulator) {
  return accumulator != nullptr &&
         HWY_DYNAMIC_DISPATCH(TakesOnTarget)(*accumulator);
}

void ResizeFusedPanels(PreparedOperand& b) {
  const size_t lanes = HWY_DYNAMIC_DISPATCH(PanelLanesOnTarget)();
  const size_t panels = (b.values.rows() + lanes - 1) / lanes;
  const size_t depth = b.values.cols();
  b.panel_values.ResizeUninitialized(panels, depth * lanes);
  // One of the pairs holds two exponents.
  b.panel_exponents.ResizeUninitialized(panels, depth * lanes / 2);
}

void PackFusedPanel(size_t panel, PreparedOperand& b) {
  HWY_DYNAMIC_DISPATCH(PackPanelOnTarget)(panel, b);
}

void FusedSums(const FusedProduct& product, Matrix<float>& sums) {
  if (HasFusedPanels(&product.accumulator)) {
    HWY_DYNAMIC_DISPATCH(SumsOnTarget)(product, sums);
    return;
  }
  for (size_t i = 0; i < sums.rows(); ++i) {
    for (size_t j = 0; j < sums.cols(); ++j) {
      sums(i, j) = product.Sum(i, j);
    }
  }
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
