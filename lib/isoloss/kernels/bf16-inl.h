// Computes formats::RoundToBf16 on vectors. Each Highway target includes this
// file once.
#if defined(ISOLOSS_KERNELS_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_BF16_INL_H_
#undef ISOLOSS_KERNELS_BF16_INL_H_
#else
#define ISOLOSS_KERNELS_BF16_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

/// Returns the BF16 value nearest to each lane, ties to even. Integer
/// arithmetic is used because VCVTNEPS2BF16 flushes subnormals. NaN becomes
/// 0x7FC0 with its sign.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::VFromD<D> RoundToBf16(
    D d, hwy::HWY_NAMESPACE::VFromD<D> value) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto carried = hn::Add(bits, hn::Add(hn::Set(du, 0x7FFF), odd));
  const auto rounded = hn::And(carried, hn::Set(du, 0xFFFF0000u));
  const auto nan =
      hn::Or(hn::And(bits, hn::Set(du, 0x80000000u)), hn::Set(du, 0x7FC00000u));
  return hn::IfThenElse(hn::IsNaN(value), hn::BitCast(d, nan),
                        hn::BitCast(d, rounded));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_BF16_INL_H_
