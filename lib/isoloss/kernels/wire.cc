#include "isoloss/kernels/wire.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/scalar/wire.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/wire.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using scalar::DecodeBf16Row;
using scalar::DecodeE4m3Row;
using scalar::DecodeMxRow;
using scalar::EncodeBf16Row;
using scalar::EncodeE4m3Row;
using scalar::EncodeMxRow;

#else
// No other target or file shares these definitions.
namespace {

using WordTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<uint16_t, FloatTag>;
using ByteTag = hn::Rebind<uint8_t, FloatTag>;
using Floats = hn::Vec<FloatTag>;
using Words = hn::Vec<WordTag>;

constexpr uint32_t kInfinityBits = 0x7F800000;
constexpr uint32_t kNanBits = 0x7FC00000;
/// E4M3's least normal value, 2^-6, has this exponent field.
constexpr uint32_t kMinNormalField = 121;
constexpr uint8_t kE4m3Nan = 0x7F;

/// Loads the first n lanes from `from`, which may have any alignment.
template <class D>
HWY_INLINE hn::VFromD<D> LoadWire(D d, const std::byte* from, size_t n) {
  const hn::Repartition<uint8_t, D> bytes;
  uint8_t lanes[hn::MaxLanes(decltype(bytes)())];
  const auto* whole = reinterpret_cast<const uint8_t*>(from);
  if (HWY_UNLIKELY(n != hn::MaxLanes(D()))) {
    std::memset(lanes, 0, sizeof(lanes));
    std::memcpy(lanes, from, n * sizeof(hn::TFromD<D>));
    whole = lanes;
  }
  return hn::BitCast(d, hn::LoadU(bytes, whole));
}

template <class D>
HWY_INLINE void StoreWire(D /*d*/, hn::VFromD<D> v, std::byte* to, size_t n) {
  const hn::Repartition<uint8_t, D> bytes;
  const auto raw = hn::BitCast(bytes, v);
  if (HWY_LIKELY(n == hn::MaxLanes(D()))) {
    return hn::StoreU(raw, bytes, reinterpret_cast<uint8_t*>(to));
  }
  uint8_t lanes[hn::MaxLanes(decltype(bytes)())];
  hn::StoreU(raw, bytes, lanes);
  std::memcpy(to, lanes, n * sizeof(hn::TFromD<D>));
}

HWY_INLINE hn::Mask<WordTag> Less(Words a, uint32_t b) {
  // Both are magnitudes, so that the cheaper signed comparison serves.
  const WordTag du;
  const hn::RebindToSigned<WordTag> di;
  return hn::RebindMask(
      du, hn::Lt(hn::BitCast(di, a), hn::Set(di, static_cast<int32_t>(b))));
}

/// Computes formats::Encode into E4M3 of magnitudes that round to at most 448.
HWY_INLINE hn::Vec<ByteTag> E4m3Codes(Floats values) {
  const FloatTag d;
  const WordTag du;
  const Words bits = hn::BitCast(du, values);
  const Words magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const Words odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1));
  const Words carry =
      hn::Add(odd, hn::Set(du, 0x7FFFFu - ((kMinNormalField - 1) << 23)));
  const Words normal = hn::ShiftRight<20>(hn::Add(magnitude, carry));
  // An ulp of 2^14 is the least subnormal, 2^-9.
  const Floats unit = hn::Set(d, 0x1p14f);
  const Words subnormal =
      hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), unit)),
              hn::BitCast(du, unit));
  const Words code =
      hn::IfThenElse(Less(magnitude, kMinNormalField << 23), subnormal, normal);
  const Words sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(du, 0x80));
  return hn::TruncateTo(ByteTag(), hn::Or(code, sign));
}

/// Computes formats::Decode of E4M3. Subnormals are differences of normal
/// numbers, because FP32 subnormals as operands would take an assist.
HWY_INLINE Floats E4m3Values(hn::Vec<ByteTag> codes) {
  const FloatTag d;
  const WordTag du;
  const Words code = hn::PromoteTo(du, codes);
  const Words magnitude = hn::ShiftLeft<20>(hn::And(code, hn::Set(du, 0x7Fu)));
  const Words sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80u)));
  const Words normal =
      hn::Add(magnitude, hn::Set(du, (kMinNormalField - 1) << 23));
  const Floats above =
      hn::BitCast(d, hn::Add(magnitude, hn::Set(du, kMinNormalField << 23)));
  const Words subnormal = hn::BitCast(du, hn::Sub(above, hn::Set(d, 0x1p-6f)));
  const Words finite = hn::Or(
      sign, hn::IfThenElse(Less(magnitude, 1u << 23), subnormal, normal));
  const auto nan =
      hn::Eq(magnitude, hn::Set(du, static_cast<uint32_t>(kE4m3Nan) << 20));
  return hn::BitCast(d, hn::IfThenElse(nan, hn::Set(du, kNanBits), finite));
}

/// Calls visit(i, n) for the runs [i, i + n) of [0, width).
template <size_t kRun, class Visit>
HWY_INLINE void ForEachRun(size_t width, const Visit& visit) {
  size_t i = 0;
  for (; i + kRun <= width; i += kRun) visit(i, kRun);
  if (i < width) visit(i, width - i);
}

/// Returns the bits of the largest magnitude. As integers, finite < infinity <
/// NaN.
HWY_INLINE uint32_t MaxMagnitudeBits(const float* run, size_t count) {
  const FloatTag d;
  const WordTag du;
  Words largest = hn::Zero(du);
  ForEachVector(d, count, [&](size_t i, size_t n) HWY_ATTR {
    const Words bits = hn::BitCast(du, LoadFirst(d, run + i, n));
    largest = hn::Max(largest, hn::And(bits, hn::Set(du, 0x7FFFFFFFu)));
  });
  return hn::GetLane(hn::MaxOfLanes(du, largest));
}

/// Computes formats::MxScale with kRceil for a finite largest magnitude.
HWY_INLINE uint32_t RceilScale(uint32_t amax_bits) {
  constexpr uint32_t kEmax = 8;
  const uint32_t exponent = amax_bits >> 23;
  const uint32_t limit = 0x600000u + (exponent == kEmax ? 1 : 0);
  const uint32_t above = (amax_bits & 0x7FFFFF) > limit ? 1 : 0;
  return std::max(exponent + above, kEmax) - kEmax;
}

/// Returns 2^(127 - s), s at most 253.
HWY_INLINE float Reciprocal(uint32_t scale) {
  return std::bit_cast<float>((254 - scale) << 23);
}

HWY_INLINE void EncodeRun(const float* run, size_t count, float factor,
                          std::byte* codes) {
  const FloatTag d;
  const Floats factors = hn::Set(d, factor);
  ForEachVector(d, count, [&](size_t i, size_t n) HWY_ATTR {
    const Floats scaled = hn::Mul(LoadFirst(d, run + i, n), factors);
    StoreWire(ByteTag(), E4m3Codes(scaled), codes + i, n);
  });
}

HWY_INLINE void DecodeRun(const std::byte* codes, size_t count, float scale,
                          Rounding rounding, float* run) {
  const FloatTag d;
  const Floats scales = hn::Set(d, scale);
  ForEachVector(d, count, [&](size_t i, size_t n) HWY_ATTR {
    const Floats values = E4m3Values(LoadWire(ByteTag(), codes + i, n));
    StoreFirst(d, Round(d, hn::Mul(values, scales), rounding), run + i, n);
  });
}

/// Writes the codes of a run and returns its scale.
template <RunScale kScale>
HWY_INLINE float EncodeScaledRun(const float* run, size_t count,
                                 std::byte* codes) {
  const uint32_t bits = MaxMagnitudeBits(run, count);
  if (HWY_UNLIKELY(bits >= kInfinityBits)) {
    std::memset(codes, kE4m3Nan, count);
    return std::bit_cast<float>(kNanBits);
  }
  const float amax = std::max(std::bit_cast<float>(bits), 1e-4f);
  if constexpr (kScale == RunScale::kFp32) {
    EncodeRun(run, count, 448.0f / amax, codes);
    return amax / 448.0f;
  } else {
    const uint32_t scale = RceilScale(std::bit_cast<uint32_t>(amax));
    EncodeRun(run, count, Reciprocal(scale), codes);
    return std::bit_cast<float>(scale << 23);
  }
}

template <RunScale kScale>
void EncodeScaledRow(const float* row, size_t width, std::byte* bytes) {
  std::byte* scales = bytes + width;
  ForEachRun<kScaledRun>(width, [&](size_t i, size_t n) HWY_ATTR {
    const float scale = EncodeScaledRun<kScale>(row + i, n, bytes + i);
    std::memcpy(scales, &scale, sizeof(scale));
    scales += sizeof(scale);
  });
}

template <Rounding kRounding>
void DecodeScaledRow(const std::byte* bytes, size_t width, float* row) {
  const std::byte* scales = bytes + width;
  ForEachRun<kScaledRun>(width, [&](size_t i, size_t n) HWY_ATTR {
    float scale;
    std::memcpy(&scale, scales, sizeof(scale));
    scales += sizeof(scale);
    DecodeRun(bytes + i, n, scale, kRounding, row + i);
  });
}

template <Rounding kRounding>
void DecodeMx(const std::byte* bytes, size_t width, float* row) {
  const std::byte* scale = bytes + width;
  ForEachRun<formats::kMxBlockSize>(width, [&](size_t i, size_t n) HWY_ATTR {
    const auto code = static_cast<uint32_t>(*scale++);
    const uint32_t bits = code == 0xFF ? kNanBits
                          : code == 0  ? 0x00400000u
                                       : code << 23;
    DecodeRun(bytes + i, n, std::bit_cast<float>(bits), kRounding, row + i);
  });
}

}  // namespace

void EncodeBf16Row(const float* row, size_t width, std::byte* bytes) {
  const FloatTag d;
  const WordTag du;
  ForEachVector(d, width, [&](size_t i, size_t n) HWY_ATTR {
    const auto rounded = RoundToBf16(d, LoadFirst(d, row + i, n));
    const auto codes =
        hn::TruncateTo(HalfTag(), hn::ShiftRight<16>(hn::BitCast(du, rounded)));
    StoreWire(HalfTag(), codes, bytes + i * sizeof(uint16_t), n);
  });
}

void DecodeBf16Row(const std::byte* bytes, size_t width, float* row) {
  const FloatTag d;
  const WordTag du;
  ForEachVector(d, width, [&](size_t i, size_t n) HWY_ATTR {
    const auto codes = LoadWire(HalfTag(), bytes + i * sizeof(uint16_t), n);
    const auto words = hn::ShiftLeft<16>(hn::PromoteTo(du, codes));
    StoreFirst(d, hn::BitCast(d, words), row + i, n);
  });
}

void EncodeMxRow(const float* row, size_t width, std::byte* bytes) {
  std::byte* scale = bytes + width;
  ForEachRun<formats::kMxBlockSize>(width, [&](size_t i, size_t n) HWY_ATTR {
    const uint32_t amax = MaxMagnitudeBits(row + i, n);
    if (HWY_UNLIKELY(amax >= kInfinityBits)) {
      std::memset(bytes + i, kE4m3Nan, n);
      *scale++ = std::byte{0xFF};
    } else {
      const uint32_t code = RceilScale(amax);
      EncodeRun(row + i, n, Reciprocal(code), bytes + i);
      *scale++ = static_cast<std::byte>(code);
    }
  });
}

void DecodeMxRow(const std::byte* bytes, size_t width, Rounding rounding,
                 float* row) {
  if (rounding == Rounding::kBf16) {
    DecodeMx<Rounding::kBf16>(bytes, width, row);
  } else {
    DecodeMx<Rounding::kFp32>(bytes, width, row);
  }
}

void EncodeE4m3Row(const float* row, size_t width, RunScale run_scale,
                   std::byte* bytes) {
  if (run_scale == RunScale::kFp32) {
    EncodeScaledRow<RunScale::kFp32>(row, width, bytes);
  } else {
    EncodeScaledRow<RunScale::kPow2>(row, width, bytes);
  }
}

void DecodeE4m3Row(const std::byte* bytes, size_t width, Rounding rounding,
                   float* row) {
  if (rounding == Rounding::kBf16) {
    DecodeScaledRow<Rounding::kBf16>(bytes, width, row);
  } else {
    DecodeScaledRow<Rounding::kFp32>(bytes, width, row);
  }
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(EncodeBf16Row);
HWY_EXPORT(DecodeBf16Row);
HWY_EXPORT(EncodeMxRow);
HWY_EXPORT(DecodeMxRow);
HWY_EXPORT(EncodeE4m3Row);
HWY_EXPORT(DecodeE4m3Row);

}  // namespace

void EncodeBf16Row(const float* row, size_t width, std::byte* bytes) {
  HWY_DYNAMIC_DISPATCH(EncodeBf16Row)(row, width, bytes);
}

void DecodeBf16Row(const std::byte* bytes, size_t width, float* row) {
  HWY_DYNAMIC_DISPATCH(DecodeBf16Row)(bytes, width, row);
}

void EncodeMxRow(const float* row, size_t width, std::byte* bytes) {
  HWY_DYNAMIC_DISPATCH(EncodeMxRow)(row, width, bytes);
}

void DecodeMxRow(const std::byte* bytes, size_t width, Rounding rounding,
                 float* row) {
  HWY_DYNAMIC_DISPATCH(DecodeMxRow)(bytes, width, rounding, row);
}

void EncodeE4m3Row(const float* row, size_t width, RunScale run_scale,
                   std::byte* bytes) {
  HWY_DYNAMIC_DISPATCH(EncodeE4m3Row)(row, width, run_scale, bytes);
}

void DecodeE4m3Row(const std::byte* bytes, size_t width, Rounding rounding,
                   float* row) {
  HWY_DYNAMIC_DISPATCH(DecodeE4m3Row)(bytes, width, rounding, row);
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
