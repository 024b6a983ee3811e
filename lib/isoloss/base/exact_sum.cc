#include "isoloss/base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "isoloss/base/error.h"

namespace isoloss {
namespace {

constexpr int kMantissaBits = 52;
constexpr int kUnitExponent = -1074;  // of the smallest subnormal
constexpr uint64_t kLimbMask = 0xFFFFFFFF;

/// Returns bits [first, first + 53) of a number in limbs of 32 bits.
uint64_t MantissaAt(std::span<const int64_t> limbs, int first) {
  uint64_t bits = 0;
  for (int i = first / 32; i <= (first + kMantissaBits) / 32; ++i) {
    const auto limb = static_cast<uint64_t>(limbs[static_cast<size_t>(i)]);
    const int at = 32 * i - first;
    bits |= at >= 0 ? limb << at : limb >> -at;
  }
  return bits & ((uint64_t{2} << kMantissaBits) - 1);
}

bool AnyBelow(std::span<const int64_t> limbs, int end) {
  const auto whole = static_cast<size_t>(end / 32);
  for (size_t i = 0; i < whole; ++i) {
    if (limbs[i] != 0) return true;
  }
  return (limbs[whole] & ((int64_t{1} << end % 32) - 1)) != 0;
}

}  // namespace

void ExactSum::Add(double term) {
  const auto bits = std::bit_cast<uint64_t>(term);
  const auto field = static_cast<uint32_t>(bits >> kMantissaBits & 0x7FF);
  ISOLOSS_ASSERT(field != 0x7FF);
  const uint64_t fraction = bits & ((uint64_t{1} << kMantissaBits) - 1);
  // Subnormals have the exponent of field 1 and no hidden bit.
  const uint64_t mantissa =
      fraction | (field != 0 ? uint64_t{1} << kMantissaBits : 0);
  const uint32_t place = field != 0 ? field - 1 : 0;
  const uint32_t shift = place % kLimbBits;
  // The shifted mantissa has up to 84 bits, in three limbs.
  const uint64_t low = mantissa << shift;
  const uint64_t high = shift != 0 ? mantissa >> (64 - shift) : 0;
  // -1 or 0: (x ^ sign) - sign is -x or x.
  const int64_t sign = -static_cast<int64_t>(bits >> 63);
  int64_t* const at = limbs_.data() + place / kLimbBits;
  at[0] += (static_cast<int64_t>(low & kLimbMask) ^ sign) - sign;
  at[1] += (static_cast<int64_t>(low >> kLimbBits) ^ sign) - sign;
  at[2] += (static_cast<int64_t>(high) ^ sign) - sign;
  if (++pending_ >= kMaxPending) Carry();
}

void ExactSum::Add(const ExactSum& other) {
  for (size_t i = 0; i < kLimbs; ++i) limbs_[i] += other.limbs_[i];
  // After Carry, a limb is what one Add could have left.
  pending_ += other.pending_ + 1;
  if (pending_ >= kMaxPending) Carry();
}

double ExactSum::Value() const {
  ExactSum sum = *this;
  sum.Carry();
  const bool negative = sum.limbs_.back() < 0;
  if (negative) {
    for (int64_t& limb : sum.limbs_) limb = -limb;
    sum.Carry();
  }
  const auto top = std::find_if(sum.limbs_.rbegin(), sum.limbs_.rend(),
                                [](int64_t limb) { return limb != 0; });
  if (top == sum.limbs_.rend()) return 0.0;
  const auto limb = static_cast<int>(sum.limbs_.rend() - top) - 1;
  const int highest =
      limb * kLimbBits - 1 +
      static_cast<int>(std::bit_width(static_cast<uint64_t>(*top)));
  const int lowest = std::max(highest - kMantissaBits, 0);
  uint64_t mantissa = MantissaAt(sum.limbs_, lowest);
  if (lowest > 0) {
    const bool half = (MantissaAt(sum.limbs_, lowest - 1) & 1) != 0;
    const bool beyond = AnyBelow(sum.limbs_, lowest - 1);
    if (half && (beyond || mantissa % 2 == 1)) ++mantissa;
  }
  const double magnitude =
      std::ldexp(static_cast<double>(mantissa), lowest + kUnitExponent);
  return negative ? -magnitude : magnitude;
}

ExactSum::Parts ExactSum::Split() const {
  Parts parts{};
  parts.high = Value();
  ExactSum rest = *this;
  rest.Add(-parts.high);
  parts.low = rest.Value();
  return parts;
}

void ExactSum::Pack(std::vector<int64_t>& to) const {
  ExactSum sum = *this;
  sum.Carry();
  to.insert(to.end(), sum.limbs_.begin(), sum.limbs_.end());
}

ExactSum ExactSum::Unpack(std::span<const int64_t, kLimbs> limbs) {
  ExactSum sum;
  std::copy(limbs.begin(), limbs.end(), sum.limbs_.begin());
  sum.Carry();
  return sum;
}

void ExactSum::Carry() {
  for (size_t i = 0; i + 1 < kLimbs; ++i) {
    limbs_[i + 1] += limbs_[i] >> kLimbBits;
    limbs_[i] &= static_cast<int64_t>(kLimbMask);
  }
  pending_ = 1;
}

}  // namespace isoloss
