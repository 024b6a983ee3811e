// Computes the float functions of elementary.h on vectors, bit for bit. Each
// Highway target includes this file once.
#if defined(ISOLOSS_KERNELS_ELEMENTARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_ELEMENTARY_INL_H_
#undef ISOLOSS_KERNELS_ELEMENTARY_INL_H_
#else
#define ISOLOSS_KERNELS_ELEMENTARY_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "isoloss/kernels/elementary_constants.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatConstants = ElementaryConstants<float>;

/// Evaluates the polynomial with these coefficients, highest power first.
template <class D, size_t kTerms>
HWY_INLINE hn::VFromD<D> Horner(D d, hn::VFromD<D> x,
                                const std::array<float, kTerms>& coefficients) {
  auto sum = hn::Set(d, coefficients[0]);
  for (size_t i = 1; i < kTerms; ++i) {
    sum = hn::MulAdd(sum, x, hn::Set(d, coefficients[i]));
  }
  return sum;
}

template <class D>
HWY_INLINE hn::VFromD<D> NotANumber(D d) {
  return hn::Set(d, std::numeric_limits<float>::quiet_NaN());
}

/// Returns 2^exponent for exponents of normal numbers.
template <class D>
HWY_INLINE hn::VFromD<D> PowerOfTwo(
    D d, hn::VFromD<hn::RebindToSigned<D>> exponent) {
  const hn::RebindToSigned<D> di;
  const auto biased =
      hn::Add(exponent, hn::Set(di, FloatConstants::kExponentBias));
  return hn::BitCast(d, hn::ShiftLeft<FloatConstants::kMantissaBits>(biased));
}

/// Returns p * 2^n, rounded once, for p near 1 and the n of Exp; `n_shifted` is
/// n plus kRoundToInteger.
template <class D>
HWY_INLINE hn::VFromD<D> ScaleByPower(D d, hn::VFromD<D> p,
                                      [[maybe_unused]] hn::VFromD<D> n,
                                      hn::VFromD<D> n_shifted) {
#if HWY_TARGET <= HWY_AVX3  // which Highway has no operation for
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::VFromD<D>{_mm512_scalef_ps(p.raw, n.raw)};
  }
#endif
  // The method is that of ExpOf in elementary.cc. The low bits of n_shifted are
  // n.
  const hn::RebindToSigned<D> di;
  const auto zero = hn::Set(d, FloatConstants::kRoundToInteger);
  const auto exponent =
      hn::Sub(hn::BitCast(di, n_shifted), hn::BitCast(di, zero));
  const auto half = hn::ShiftRight<1>(exponent);
  return hn::Mul(hn::Mul(p, PowerOfTwo(d, half)),
                 PowerOfTwo(d, hn::Sub(exponent, half)));
}

template <class D>
HWY_INLINE hn::VFromD<D> Exp(D d, hn::VFromD<D> x) {
  using C = FloatConstants;
  const auto clamped =
      hn::Min(hn::Max(x, hn::Set(d, C::kExpMin)), hn::Set(d, C::kExpMax));
  const auto magic = hn::Set(d, C::kRoundToInteger);
  const auto n_shifted = hn::MulAdd(clamped, hn::Set(d, C::kLog2E), magic);
  const auto n = hn::Sub(n_shifted, magic);
  const auto r =
      hn::NegMulAdd(n, hn::Set(d, C::kLn2Low),
                    hn::NegMulAdd(n, hn::Set(d, C::kLn2High), clamped));
  const auto p = hn::Add(hn::MulAdd(hn::Mul(r, r), Horner(d, r, C::kExp), r),
                         hn::Set(d, 1.0f));
  const auto scaled = ScaleByPower(d, p, n, n_shifted);
  return hn::IfThenElse(hn::IsNaN(x), NotANumber(d), scaled);
}

template <class D>
HWY_INLINE hn::VFromD<D> Log(D d, hn::VFromD<D> x) {
  using C = FloatConstants;
  const hn::RebindToSigned<D> di;
  const auto zero = hn::Zero(d);
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const auto subnormal = hn::Lt(x, hn::Set(d, C::kSmallestNormal));
  const auto bits = hn::BitCast(
      di,
      hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, C::kSubnormalScale)), x));
  const auto exponent = hn::ShiftRight<C::kMantissaBits>(
      hn::Sub(bits, hn::Set(di, C::kSqrtHalfBits)));
  const auto mantissa =
      hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<C::kMantissaBits>(exponent)));
  const auto f = hn::Sub(mantissa, hn::Set(d, 1.0f));
  const auto shift = hn::IfThenElseZero(
      subnormal, hn::Set(d, static_cast<float>(C::kSubnormalShift)));
  const auto e = hn::Sub(hn::ConvertTo(d, exponent), shift);
  const auto s = hn::Div(f, hn::Add(hn::Set(d, 2.0f), f));
  const auto z = hn::Mul(s, s);
  const auto series = hn::Mul(z, Horner(d, z, C::kLog));
  const auto correction = hn::MulAdd(
      s, hn::Sub(f, series), hn::Neg(hn::Mul(e, hn::Set(d, C::kLn2Low))));
  auto result = hn::MulAdd(e, hn::Set(d, C::kLn2High), hn::Sub(f, correction));
  result = hn::IfThenElse(hn::Eq(x, infinity), infinity, result);
  result = hn::IfThenElse(hn::Gt(x, zero), result, NotANumber(d));
  return hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), result);
}

template <class D>
HWY_INLINE hn::VFromD<D> Sigmoid(D d, hn::VFromD<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto e = Exp(d, hn::Neg(hn::Abs(x)));
  const auto numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_ELEMENTARY_INL_H_
