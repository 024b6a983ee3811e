// Computes TruncatingSum (kernels/fused_sum.h) for a tile of elements at once.
// Each Highway target with vectors of fixed length includes this file once.
//
// An instruction's sum is computed in units u = 2^(E - F), E being the largest
// exponent of its terms and F the fraction bits. A factor *fits* if it is
// finite, below 2^(e + 1) in magnitude for its exponent e, and has at most 12
// significant bits. If all factors fit and F - 125 <= E <= 126, then for at
// most 64 products and F <= 25
// * the FP32 product p is exact, or both it and its true value are below u:
//   only products below 2^-126 are rounded, at most to 2^-126 < 2^-125 <= u;
// * p / u is exact or below 1. It is below 2^(F + 2), so that 2^(29 - F) terms
//   have a sum of 32 bits, a partial sum. The sum before is below 2^(F + 1);
// * the result has at most 24 bits. It is zero, at least 2^-125 or beyond FP32,
//   and multiplied by u it is infinite then, too.
// Other elements are *rare*, and so are those whose partial sums are so large
// that their total may not have 32 bits. They are left to the definition. A
// packed factor that does not fit has an exponent that makes its elements rare.
#if defined(ISOLOSS_KERNELS_FUSED_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_FUSED_TILE_INL_H_
#undef ISOLOSS_KERNELS_FUSED_TILE_INL_H_
#else
#define ISOLOSS_KERNELS_FUSED_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "isoloss/kernels/accumulator.h"
#include "isoloss/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

using I16 = hn::Repartition<int16_t, F32>;
using I32 = hn::RebindToSigned<F32>;
using VecI32 = hn::Vec<I32>;

/// A panel holds rows of b, as many as exponents fit into a vector.
constexpr size_t kPanelVectors = 2;
constexpr size_t kPanelLanes = kPanelVectors * kLanes;
/// A tile has this number of rows of a by one panel.
constexpr size_t kFusedRows = kLanes == 16 ? 4 : 2;
/// All rows of a strip meet this number of steps of a panel, which stay in the
/// first-level cache, before the next steps.
constexpr size_t kFusedBlock = 128;

/// Packed exponents of b have this bias, and those of a have none, so that a
/// sum of both is as in an FP32 number.
constexpr int32_t kExponentBias = 127;
/// A factor that does not fit has this exponent, so that the sum is too high.
constexpr int32_t kUnfitExponent = 4096;
constexpr int32_t kHighestExponent = 126 + kExponentBias;

/// Holds an accumulator as vectors need it.
struct FusedAdder {
  static bool Takes(const Accumulator& accumulator) {
    return accumulator.adder == Adder::kTruncating && accumulator.group == 1 &&
           accumulator.steps <= 64 && accumulator.fraction_bits <= 25;
  }
  explicit FusedAdder(const Accumulator& accumulator)
      : fraction_bits(accumulator.fraction_bits),
        lowest_exponent(fraction_bits - 125 + kExponentBias),
        terms(size_t{1} << (29 - fraction_bits)),
        kept_bits(~0u << (24 - accumulator.significand_bits)) {
    const auto partial_sums =
        static_cast<int32_t>((accumulator.steps + terms - 1) / terms);
    largest_partial = (INT32_MAX - (1 << (fraction_bits + 1))) / partial_sums;
  }

  /// Tells which scales are not above that of the lowest exponent.
  HWY_INLINE hn::Mask<I32> IsSmall(VecI32 scales) const {
    return hn::Lt(scales, hn::Set(I32(), (lowest_exponent + 1) << 23));
  }

  int32_t fraction_bits;
  int32_t lowest_exponent;
  size_t terms;             ///< of a partial sum
  int32_t largest_partial;  ///< a total of such sums has 32 bits
  uint32_t kept_bits;       ///< of an FP32 sum
};

/// Element (i, k) of a lies at [i * kFusedBlock + k]. Both halves of its packed
/// exponent are the exponent.
struct FusedLeft {
  const float* values;
  const int32_t* exponents;
};
/// Element (j, k) of b lies at [k * kPanelLanes + j]. The exponent of row j of
/// the first vector is the lower half of [k * kLanes + j], and that of the
/// second vector the upper one.
struct FusedRight {
  const float* values;
  const int32_t* exponents;
};

/// Converts numbers below 2^31 in magnitude, cut off toward zero. A rare
/// element gets any number.
HWY_INLINE VecI32 CutToInteger(VecF value) {
#if HWY_TARGET == HWY_AVX2
  return VecI32{_mm256_cvttps_epi32(value.raw)};  // Highway mends large numbers
#elif HWY_ARCH_X86
  return VecI32{_mm512_cvttps_epi32(value.raw)};
#else
  return hn::ConvertTo(I32(), value);
#endif
}

/// Converts integers to FP32, cut off toward zero.
HWY_INLINE VecF CutToFloat(VecI32 value) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_AVX2
  return VecF{_mm512_cvt_roundepi32_ps(value.raw,
                                       _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
#else
  const F32 d;
  const hn::Repartition<double, F32> d64;
  const hn::Half<I32> half;
  const hn::Half<F32> half_float;
  const auto cut = [&](auto integers) HWY_ATTR {
    const auto bits = hn::Set(hn::RebindToUnsigned<decltype(d64)>(),
                              ~uint64_t{0} << (53 - 24));
    return hn::DemoteTo(half_float, hn::And(hn::PromoteTo(d64, integers),
                                            hn::BitCast(d64, bits)));
  };
  return hn::Combine(d, cut(hn::UpperHalf(half, value)),
                     cut(hn::LowerHalf(half, value)));
#endif
}

/// Tells which rare elements a tile has.
enum class RareElements {
  kNone,
  kZero,  ///< small exponents: zeros have their true sum, +0
  kAny,   ///< these have any sum
};

/// Holds a vector for each part of a tile.
template <size_t kRows, class V>
using FusedTile = V[kRows][kPanelVectors];

/// Calls use(i, v) for each vector of a tile.
template <size_t kRows, class Use>
HWY_INLINE void ForEachOfTile(const Use& use) {
  HWY_UNROLL(4)
  for (size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(2)
    for (size_t v = 0; v < kPanelVectors; ++v) use(i, v);
  }
}

/// Finds 2^E of a tile's elements as the bits of FP32, but not of exponents
/// below the lowest.
template <size_t kRows>
HWY_INLINE void FindScales(const FusedAdder& adder, const FusedLeft& a,
                           const FusedRight& b, size_t count, const float* sums,
                           FusedTile<kRows, VecI32>& scales) {
  const I16 d16;
  const I32 d32;
  hn::Vec<I16> largest[kRows];
  HWY_UNROLL(4)
  for (size_t i = 0; i < kRows; ++i) {
    largest[i] = hn::Set(d16, static_cast<int16_t>(adder.lowest_exponent));
  }
  for (size_t k = 0; k < count; ++k) {
    const auto of_b =
        hn::BitCast(d16, hn::LoadU(d32, b.exponents + k * kLanes));
    HWY_UNROLL(4)
    for (size_t i = 0; i < kRows; ++i) {
      const auto of_a =
          hn::BitCast(d16, hn::Set(d32, a.exponents[i * kFusedBlock + k]));
      largest[i] = hn::Max(largest[i], hn::Add(of_a, of_b));
    }
  }
  const VecI32 infinity = hn::Set(d32, 0x7F800000);
  ForEachOfTile<kRows>([&](size_t i, size_t v) HWY_ATTR {
    const VecI32 pairs =
        hn::BitCast(d32, hn::Min(largest[i], hn::Set(d16, 255)));
    const VecI32 of_products = v == 0
                                   ? hn::ShiftLeft<23>(pairs)
                                   : hn::And(hn::ShiftLeft<7>(pairs), infinity);
    const VecI32 sum =
        hn::BitCast(d32, hn::LoadU(F32(), sums + i * kPanelLanes + v * kLanes));
    scales[i][v] = hn::Max(of_products, hn::And(sum, infinity));
  });
}

/// Adds the products of steps [first, end), which make a partial sum, to
/// `units`. Returns the largest of its magnitudes and of `partial`.
template <size_t kRows>
HWY_INLINE VecI32 AddPartialSums(const FusedLeft& a, const FusedRight& b,
                                 size_t first, size_t end,
                                 const FusedTile<kRows, VecF>& per_unit,
                                 VecI32 partial,
                                 FusedTile<kRows, VecI32>& units) {
  const F32 d;
  FusedTile<kRows, VecI32> total;
  ForEachOfTile<kRows>([&](size_t i, size_t v)
                           HWY_ATTR { total[i][v] = hn::Zero(I32()); });
  for (size_t k = first; k < end; ++k) {
    VecF right[kPanelVectors];
    HWY_UNROLL(2)
    for (size_t v = 0; v < kPanelVectors; ++v) {
      right[v] = hn::LoadU(d, b.values + k * kPanelLanes + v * kLanes);
    }
    ForEachOfTile<kRows>([&](size_t i, size_t v) HWY_ATTR {
      const VecF left = hn::Set(d, a.values[i * kFusedBlock + k]);
      const VecF product = hn::Mul(left, right[v]);
      total[i][v] =
          hn::Add(total[i][v], CutToInteger(hn::Mul(product, per_unit[i][v])));
    });
  }
  ForEachOfTile<kRows>([&](size_t i, size_t v) HWY_ATTR {
    partial = hn::Max(partial, hn::Abs(total[i][v]));
    units[i][v] = hn::Add(units[i][v], total[i][v]);
  });
  return partial;
}

template <size_t kRows>
HWY_INLINE RareElements FindRare(const FusedAdder& adder,
                                 const FusedTile<kRows, VecI32>& scales,
                                 VecI32 partial) {
  const I32 d32;
  VecI32 low = scales[0][0];
  VecI32 high = low;
  ForEachOfTile<kRows>([&](size_t i, size_t v) HWY_ATTR {
    low = hn::Min(low, scales[i][v]);
    high = hn::Max(high, scales[i][v]);
  });
  const auto any = hn::Or(hn::Gt(high, hn::Set(d32, kHighestExponent << 23)),
                          hn::Gt(partial, hn::Set(d32, adder.largest_partial)));
  if (!hn::AllFalse(d32, any)) return RareElements::kAny;
  return hn::AllFalse(d32, adder.IsSmall(low)) ? RareElements::kNone
                                               : RareElements::kZero;
}

/// Adds `count` products to each of a tile's sums, both of which have rows of
/// kPanelLanes. Returns what FindScales found, too.
template <size_t kRows>
HWY_INLINE RareElements AddProducts(const FusedAdder& adder, const FusedLeft& a,
                                    const FusedRight& b, size_t count,
                                    const float* sums, float* new_sums,
                                    FusedTile<kRows, VecI32>& scales) {
  const F32 d;
  const I32 d32;
  const hn::RebindToUnsigned<I32> du;
  FindScales<kRows>(adder, a, b, count, sums, scales);
  const auto fraction_bits = static_cast<uint32_t>(adder.fraction_bits) << 23;
  // The biased exponents of 2^E and 1 / u have this sum; it may wrap around.
  const VecI32 both = hn::BitCast(
      d32, hn::Set(du, (uint32_t{2 * kExponentBias} << 23) + fraction_bits));
  FusedTile<kRows, VecF> per_unit;
  FusedTile<kRows, VecI32> units;
  ForEachOfTile<kRows>([&](size_t i, size_t v) HWY_ATTR {
    per_unit[i][v] = hn::BitCast(d, hn::Sub(both, scales[i][v]));
    const VecF sum = hn::LoadU(d, sums + i * kPanelLanes + v * kLanes);
    units[i][v] = CutToInteger(hn::Mul(sum, per_unit[i][v]));
  });
  VecI32 partial = hn::Zero(d32);
  for (size_t k = 0; k < count; k += adder.terms) {
    partial = AddPartialSums<kRows>(a, b, k, std::min(count, k + adder.terms),
                                    per_unit, partial, units);
  }
  const VecF kept = hn::BitCast(d, hn::Set(du, adder.kept_bits));
  ForEachOfTile<kRows>([&](size_t i, size_t v) HWY_ATTR {
    const VecF unit = hn::BitCast(
        d, hn::Sub(scales[i][v], hn::BitCast(d32, hn::Set(du, fraction_bits))));
    hn::StoreU(hn::Mul(hn::And(CutToFloat(units[i][v]), kept), unit), d,
               new_sums + i * kPanelLanes + v * kLanes);
  });
  return FindRare<kRows>(adder, scales, partial);
}

/// Tells for which rare elements of row i, in vector v, the sum of AddProducts
/// is wrong.
HWY_INLINE hn::Mask<I32> WrongLanes(const FusedAdder& adder, const FusedLeft& a,
                                    const FusedRight& b, size_t count, size_t i,
                                    size_t v, const float* sums) {
  const F32 d;
  const I32 d32;
  const VecF sum = hn::LoadU(d, sums + i * kPanelLanes + v * kLanes);
  VecI32 nonzero = hn::BitCast(d32, hn::Abs(sum));
  VecI32 largest = hn::Max(hn::ShiftRight<23>(nonzero), hn::Set(d32, 1));
  VecF total = hn::Zero(d);
  for (size_t k = 0; k < count; ++k) {
    const VecI32 pairs = hn::LoadU(d32, b.exponents + k * kLanes);
    const VecI32 of_b =
        hn::ShiftRight<16>(v == 0 ? hn::ShiftLeft<16>(pairs) : pairs);
    const size_t left = i * kFusedBlock + k;
    const int32_t of_a = static_cast<int16_t>(a.exponents[left] & 0xFFFF);
    largest = hn::Max(largest, hn::Add(hn::Set(d32, of_a), of_b));
    const VecF factor_a = hn::Abs(hn::Set(d, a.values[left]));
    const VecF factor_b =
        hn::Abs(hn::LoadU(d, b.values + k * kPanelLanes + v * kLanes));
    nonzero = hn::Or(nonzero, hn::Min(hn::BitCast(d32, factor_a),
                                      hn::BitCast(d32, factor_b)));
    total = hn::MulAdd(factor_a, factor_b, total);
  }
  const auto high = hn::Gt(largest, hn::Set(d32, kHighestExponent));
  const auto low = hn::And(hn::Lt(largest, hn::Set(d32, adder.lowest_exponent)),
                           hn::Ne(nonzero, hn::Zero(d32)));
  // No partial sum is larger than this sum of magnitudes, whose roundings the
  // last factor allows for.
  const VecF bound =
      hn::Mul(hn::BitCast(d, hn::ShiftLeft<23>(largest)),
              hn::Set(d, std::ldexp(static_cast<float>(adder.largest_partial),
                                    -adder.fraction_bits) *
                             0.99f));
  const auto many_bits = hn::RebindMask(d32, hn::Gt(total, bound));
  return hn::Or(hn::Or(high, low), many_bits);
}

/// Finds in which lanes a factor of b is not zero.
HWY_INLINE void FindNonzero(const FusedRight& b, size_t count,
                            VecI32 (&nonzero)[kPanelVectors]) {
  const F32 d;
  const I32 d32;
  for (size_t v = 0; v < kPanelVectors; ++v) {
    nonzero[v] = hn::Zero(d32);
    for (size_t k = 0; k < count; ++k) {
      const VecF factor = hn::LoadU(d, b.values + k * kPanelLanes + v * kLanes);
      nonzero[v] = hn::Or(nonzero[v], hn::BitCast(d32, hn::Abs(factor)));
    }
  }
}

/// Tells whether all sums of row i and all factors of a are zero.
HWY_INLINE bool IsZeroRow(const FusedLeft& a, size_t count, size_t i,
                          const float* sums) {
  const F32 d;
  VecF any = hn::Zero(d);
  const auto add = [&](const float* from, size_t n) HWY_ATTR {
    any = hn::Or(any, hn::Abs(LoadFirst(d, from, n)));
  };
  for (size_t v = 0; v < kPanelVectors; ++v) {
    add(sums + i * kPanelLanes + v * kLanes, kLanes);
  }
  ForEachVector(d, count, [&](size_t k, size_t n) HWY_ATTR {
    add(a.values + i * kFusedBlock + k, n);
  });
  return hn::AllTrue(d, hn::Eq(any, hn::Zero(d)));
}

/// Calls define(i, lane) for the elements of a tile whose sums AddProducts
/// could not compute. Rows and lanes of zeros are passed over quickly.
template <size_t kRows, class Define>
HWY_INLINE void DefineRare(const FusedAdder& adder, const FusedLeft& a,
                           const FusedRight& b, size_t count, const float* sums,
                           const FusedTile<kRows, VecI32>& scales,
                           RareElements rare, const Define& define) {
  const I32 d32;
  VecI32 nonzero[kPanelVectors];
  FindNonzero(b, count, nonzero);
  for (size_t i = 0; i < kRows; ++i) {
    if (rare == RareElements::kZero && IsZeroRow(a, count, i, sums)) continue;
    for (size_t v = 0; v < kPanelVectors; ++v) {
      const VecI32 sum = hn::BitCast(
          d32, hn::Abs(hn::LoadU(F32(), sums + i * kPanelLanes + v * kLanes)));
      const auto suspect =
          hn::And(adder.IsSmall(scales[i][v]),
                  hn::Ne(hn::Or(nonzero[v], sum), hn::Zero(d32)));
      if (rare == RareElements::kZero && hn::AllFalse(d32, suspect)) continue;
      const auto wrong = WrongLanes(adder, a, b, count, i, v, sums);
      if (hn::AllFalse(d32, wrong)) continue;
      int32_t lanes[kLanes];
      hn::StoreU(hn::VecFromMask(d32, wrong), d32, lanes);
      for (size_t lane = 0; lane < kLanes; ++lane) {
        if (lanes[lane] != 0) define(i, v * kLanes + lane);
      }
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_FUSED_TILE_INL_H_
