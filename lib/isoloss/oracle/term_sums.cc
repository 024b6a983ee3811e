#include "isoloss/oracle/term_sums.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "isoloss/base/error.h"
#include "isoloss/oracle/estimate.h"

// Highway compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/oracle/term_sums.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::oracle::HWY_NAMESPACE {
// Each target and each file has functions of these names.
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::CappedTag<double, 8>;
using Narrow = hn::Rebind<float, Wide>;
using Doubles = hn::Vec<Wide>;

/// The registers of the target hold the sums of kRowsAtOnce rows.
constexpr size_t kWideLanes = hn::MaxLanes(Wide());
constexpr size_t kRowsAtOnce = kWideLanes == 8 ? kDotRows : kDotRows / 2;

/// This factor allows for the roundings of the bounds' own arithmetic.
constexpr double kMore = 1.0 + 0x1p-10;

HWY_INLINE Doubles Load(const float* from) {
  return hn::PromoteTo(Wide(), hn::LoadU(Narrow(), from));
}

/// Rounds to 53 - `bits` bits, ties to even. Adding 1.5 * 2^bits times the
/// power of two at or below x drops this many bits of x. Multiplications by
/// powers of two are exact, fused or not.
template <int bits>
HWY_INLINE Doubles RoundedBits(Doubles x) {
  const Wide d;
  const hn::RebindToUnsigned<Wide> du;
  const auto exponent =
      hn::And(x, hn::BitCast(d, hn::Set(du, uint64_t{0x7FF0000000000000})));
  const auto factor =
      hn::Set(d, 1.5 * static_cast<double>(uint64_t{1} << bits));
  return hn::NegMulAdd(exponent, factor, hn::MulAdd(exponent, factor, x));
}

/// Computes the sums of TermSums for a vector of dot products.
struct Chains {
  Doubles exact, size, largest, squares, chain;

  HWY_INLINE Chains() {
    exact = size = largest = squares = chain = hn::Zero(Wide());
  }
  HWY_INLINE void Add(Doubles a, Doubles b) {
    constexpr int kBitsBeyondFp32 = 29;
    const auto term = hn::Mul(a, b);
    const auto magnitude = hn::Abs(term);
    // The product is exact, so that fusing it with the sum changes no bit.
    exact = hn::MulAdd(a, b, exact);
    size = hn::Add(size, magnitude);
    largest = hn::Max(largest, magnitude);
    const auto sum = hn::Add(chain, term);
    chain = RoundedBits<kBitsBeyondFp32>(sum);
    const auto error = hn::Sub(chain, sum);
    squares = hn::Add(squares, hn::Mul(error, error));
  }
  HWY_INLINE void Store(size_t row, size_t lane, TermSums& sums) const {
    const Wide d;
    hn::StoreU(exact, d, &sums.exact[row][lane]);
    hn::StoreU(size, d, &sums.size[row][lane]);
    hn::StoreU(largest, d, &sums.largest[row][lane]);
    hn::StoreU(squares, d, &sums.squares[row][lane]);
  }
};

HWY_INLINE void Widen(const float* const* a, size_t depth, double* scratch) {
  const Wide d;
  for (size_t row = 0; row < kDotRows; ++row) {
    size_t k = 0;
    for (; k + kWideLanes <= depth; k += kWideLanes) {
      hn::StoreU(Load(a[row] + k), d, scratch + row * depth + k);
    }
    for (; k < depth; ++k) {
      scratch[row * depth + k] = static_cast<double>(a[row][k]);
    }
  }
}

void SumTerms(const float* const* a, MatrixView<const float> panel,
              double* scratch, TermSums& sums) {
  const Wide d;
  const size_t depth = panel.rows();
  Widen(a, depth, scratch);
  for (size_t lane = 0; lane < kDotLanes; lane += kWideLanes) {
    for (size_t first = 0; first < kDotRows; first += kRowsAtOnce) {
      const double* left = scratch + first * depth;
      Chains chains[kRowsAtOnce];
      for (size_t k = 0; k < depth; ++k) {
        const auto right = Load(panel.Row(k) + lane);
        for (size_t row = 0; row < kRowsAtOnce; ++row) {
          chains[row].Add(hn::Set(d, left[row * depth + k]), right);
        }
      }
      for (size_t row = 0; row < kRowsAtOnce; ++row) {
        chains[row].Store(first + row, lane, sums);
      }
    }
  }
}

void SumPairs(MatrixView<const float> a, MatrixView<const float> b,
              TermSums& sums) {
  constexpr size_t kVectors = kDotLanes / kWideLanes;
  Chains chains[kVectors];
  for (size_t k = 0; k < a.rows(); ++k) {
    for (size_t v = 0; v < kVectors; ++v) {
      chains[v].Add(Load(a.Row(k) + v * kWideLanes),
                    Load(b.Row(k) + v * kWideLanes));
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    chains[v].Store(0, v * kWideLanes, sums);
  }
}

/// Does what SumExactly does, for two vectors of lanes.
HWY_INLINE void SumTwoExactly(const double* left, MatrixView<const float> panel,
                              size_t lane, ExactSums& sums) {
  const Wide d;
  const size_t depth = panel.rows();
  Doubles exact[kDotRows][2];
  Doubles highest[kDotRows][2];
  for (size_t row = 0; row < kDotRows; ++row) {
    for (size_t v = 0; v < 2; ++v) {
      exact[row][v] = highest[row][v] = hn::Zero(d);
    }
  }
  for (size_t begin = 0; begin < depth; begin += kPrefixTerms) {
    const size_t end = HWY_MIN(begin + kPrefixTerms, depth);
    for (size_t k = begin; k < end; ++k) {
      const auto low = Load(panel.Row(k) + lane);
      const auto high = Load(panel.Row(k) + lane + kWideLanes);
      for (size_t row = 0; row < kDotRows; ++row) {
        const auto factor = hn::Set(d, left[row * depth + k]);
        exact[row][0] = hn::MulAdd(factor, low, exact[row][0]);
        exact[row][1] = hn::MulAdd(factor, high, exact[row][1]);
      }
    }
    for (size_t row = 0; row < kDotRows; ++row) {
      for (size_t v = 0; v < 2; ++v) {
        highest[row][v] = hn::Max(highest[row][v], hn::Abs(exact[row][v]));
      }
    }
  }
  for (size_t row = 0; row < kDotRows; ++row) {
    for (size_t v = 0; v < 2; ++v) {
      hn::StoreU(exact[row][v], d, &sums.exact[row][lane + v * kWideLanes]);
      hn::StoreU(highest[row][v], d, &sums.highest[row][lane + v * kWideLanes]);
    }
  }
}

void SumExactly(const float* const* a, MatrixView<const float> panel,
                double* scratch, ExactSums& sums) {
  Widen(a, panel.rows(), scratch);
  for (size_t lane = 0; lane < kDotLanes; lane += 2 * kWideLanes) {
    SumTwoExactly(scratch, panel, lane, sums);
  }
}

bool AreMultiples(double unit, const float* a, const float* b, size_t depth) {
  const Wide d;
  // A sum with it keeps no bits below the unit.
  const double offset = 0x1.8p52 * unit;
  const auto offsets = hn::Set(d, offset);
  size_t k = 0;
  for (; k + kWideLanes <= depth; k += kWideLanes) {
    const auto term = hn::Mul(Load(a + k), Load(b + k));
    const auto rounded = hn::Sub(hn::Add(term, offsets), offsets);
    if (!hn::AllTrue(d, hn::Eq(rounded, term))) return false;
  }
  for (; k < depth; ++k) {
    const double term = static_cast<double>(a[k]) * static_cast<double>(b[k]);
    if (term + offset - offset != term) return false;
  }
  return true;
}

void PackLanes(const float* const* rows, MatrixView<float> lanes) {
  size_t k = 0;
#if HWY_TARGET != HWY_SCALAR  // which has no vectors of four
  const hn::FixedTag<float, 4> d;
  for (; k + 4 <= lanes.rows(); k += 4) {
    for (size_t n = 0; n < kDotLanes; n += 4) {
      const auto row0 = hn::LoadU(d, rows[n] + k);
      const auto row1 = hn::LoadU(d, rows[n + 1] + k);
      const auto row2 = hn::LoadU(d, rows[n + 2] + k);
      const auto row3 = hn::LoadU(d, rows[n + 3] + k);
      const auto low02 = hn::InterleaveLower(d, row0, row2);
      const auto low13 = hn::InterleaveLower(d, row1, row3);
      const auto high02 = hn::InterleaveUpper(d, row0, row2);
      const auto high13 = hn::InterleaveUpper(d, row1, row3);
      hn::StoreU(hn::InterleaveLower(d, low02, low13), d, &lanes(k, n));
      hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, &lanes(k + 1, n));
      hn::StoreU(hn::InterleaveLower(d, high02, high13), d, &lanes(k + 2, n));
      hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, &lanes(k + 3, n));
    }
  }
#endif
  for (; k < lanes.rows(); ++k) {
    for (size_t n = 0; n < kDotLanes; ++n) lanes(k, n) = rows[n][k];
  }
}

RowFacts FactsOf(const float* row, size_t depth) {
  const Wide d;
  const hn::RebindToUnsigned<Narrow> bits;
  const auto infinity = hn::Set(Narrow(), HUGE_VALF);
  auto lowest = infinity;
  auto largest = hn::Zero(Narrow());
  RowFacts facts = {};
  for (size_t begin = 0; begin < depth; begin += kPrefixTerms) {
    alignas(32) float block[kPrefixTerms] = {};
    std::memcpy(block, row + begin,
                HWY_MIN(kPrefixTerms, depth - begin) * sizeof(float));
    auto squares = hn::Zero(d);
    for (size_t i = 0; i < kPrefixTerms; i += kWideLanes) {
      const auto size = hn::Abs(hn::LoadU(Narrow(), block + i));
      const auto wide = hn::PromoteTo(d, size);
      squares = hn::MulAdd(wide, wide, squares);
      largest = hn::Max(largest, size);
      // `rest` is the number without its lowest bit, or 0 for a power of two.
      const auto word = hn::BitCast(bits, size);
      const auto rest = hn::BitCast(
          Narrow(), hn::And(word, hn::Sub(word, hn::Set(bits, 1u))));
      const auto is_power =
          hn::Eq(hn::And(word, hn::Set(bits, 0x007FFFFFu)), hn::Zero(bits));
      const auto bit = hn::IfThenElse(hn::RebindMask(Narrow(), is_power), size,
                                      hn::Sub(size, rest));
      const auto of_zero = hn::Eq(size, hn::Zero(Narrow()));
      const auto finite = hn::Lt(size, infinity);
      lowest = hn::Min(lowest, hn::IfThenElse(of_zero, infinity,
                                              hn::IfThenElseZero(finite, bit)));
    }
    const double sum = hn::GetLane(hn::SumOfLanes(d, squares));
    facts.norm += sum;
    facts.block_norm = HWY_MAX(facts.block_norm, sum);
  }
  constexpr double kRoom = 1.0 + 0x1p-20;
  facts.norm = std::sqrt(facts.norm) * kRoom;
  facts.block_norm = std::sqrt(facts.block_norm) * kRoom;
  facts.lowest_bit =
      static_cast<double>(hn::GetLane(hn::MinOfLanes(Narrow(), lowest)));
  facts.largest =
      static_cast<double>(hn::GetLane(hn::MaxOfLanes(Narrow(), largest)));
  return facts;
}

/// Returns the lanes whose sum rounds to one BF16 number, `want`, if it is off
/// by at most `reach`.
HWY_INLINE hn::Mask<Wide> StaysIn(Doubles sum, Doubles reach, Doubles& want) {
  constexpr int kBitsBeyondBf16 = 45;
  constexpr double kRoom = 1.0 - 0x1p-20;
  const Wide d;
  const hn::RebindToUnsigned<Wide> du;
  want = RoundedBits<kBitsBeyondBf16>(sum);
  const auto size = hn::Abs(want);
  const auto power =
      hn::And(want, hn::BitCast(d, hn::Set(du, uint64_t{0x7FF0000000000000})));
  // This is half the distance to the next number. Below a power of two numbers
  // lie half as far apart.
  const auto half = hn::Mul(power, hn::Set(d, 0x1p-8 * kRoom));
  const auto room =
      hn::IfThenElse(hn::Eq(size, power), hn::Mul(half, hn::Set(d, 0.5)), half);
  const auto used = hn::Add(hn::Abs(hn::Sub(sum, want)), reach);
  const auto in_range = hn::And(hn::Ge(size, hn::Set(d, 0x1p-120)),
                                hn::Le(size, hn::Set(d, 0x1p120)));
  return hn::And(hn::Le(used, room), in_range);
}

/// The sum of |term| is at most this.
HWY_INLINE Doubles SizeOf(const RowFacts& a, const LaneFacts& b, size_t lane) {
  return hn::Mul(hn::Set(Wide(), a.norm), hn::LoadU(Wide(), b.norm + lane));
}

HWY_INLINE unsigned BitsOf(hn::Mask<Wide> mask, size_t lane) {
  uint8_t bits[8] = {};
  hn::StoreMaskBits(Wide(), mask, bits);
  return static_cast<unsigned>(bits[0]) << lane;
}

unsigned RoundsSurely(const double* exact, const RowFacts& a,
                      const LaneFacts& b, size_t depth, double* want) {
  const Wide d;
  const auto relative = hn::Set(d, Gamma(depth) * kMore);
  const auto tiny = hn::Set(d, static_cast<double>(depth) * kTiny);
  unsigned surely = 0;
  for (size_t lane = 0; lane < kDotLanes; lane += kWideLanes) {
    const auto size = SizeOf(a, b, lane);
    const auto sum = hn::LoadU(d, exact + lane);
    Doubles rounded;
    const auto stays = StaysIn(sum, hn::MulAdd(size, relative, tiny), rounded);
    hn::StoreU(rounded, d, want + lane);
    const auto fits = hn::Le(size, hn::Set(d, kMostSize));
    const auto all_zero = hn::Eq(size, hn::Zero(d));
    surely |= BitsOf(hn::Or(all_zero, hn::And(stays, fits)), lane);
  }
  return surely;
}

unsigned CannotFlip(const double* exact, const double* highest,
                    const RowFacts& a, const LaneFacts& b, size_t depth,
                    double* want) {
  // Beyond this many deviations a probability is 0 (TailProbability).
  constexpr double kDeviations = 8.0;
  const Wide d;
  const auto terms = static_cast<double>(depth);
  // Each rounding is off by half a spacing of its partial sum, which includes
  // all errors before it.
  const auto relative = hn::Set(d, Gamma(depth + 1) * kMore);
  const double deviations = kDeviations * std::sqrt(terms) * kMore;
  const auto of_sum = hn::Set(d, deviations * kUnitRoundoff);
  const auto of_term =
      hn::Set(d, deviations * 2 * kUnitRoundoff / std::sqrt(12.0));
  const auto tiny = hn::Set(d, deviations * kTiny);
  unsigned surely = 0;
  for (size_t lane = 0; lane < kDotLanes; lane += kWideLanes) {
    const auto size = SizeOf(a, b, lane);
    const auto within =
        hn::MulAdd(hn::Set(d, a.block_norm), hn::LoadU(d, b.block_norm + lane),
                   hn::LoadU(d, highest + lane));
    const auto partial = hn::MulAdd(size, relative, within);
    const auto term =
        hn::Mul(hn::Set(d, a.largest), hn::LoadU(d, b.largest + lane));
    const auto reach = hn::Add(
        hn::Max(hn::Mul(partial, of_sum), hn::Mul(term, of_term)), tiny);
    Doubles rounded;
    const auto stays = StaysIn(hn::LoadU(d, exact + lane), reach, rounded);
    hn::StoreU(rounded, d, want + lane);
    const auto fits = hn::Le(partial, hn::Set(d, kMostSize));
    const auto all_zero = hn::Eq(size, hn::Zero(d));
    surely |= BitsOf(hn::Or(all_zero, hn::And(stays, fits)), lane);
  }
  return surely;
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::oracle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::oracle {
namespace {

HWY_EXPORT(SumTerms);
HWY_EXPORT(SumExactly);
HWY_EXPORT(SumPairs);
HWY_EXPORT(FactsOf);
HWY_EXPORT(AreMultiples);
HWY_EXPORT(PackLanes);
HWY_EXPORT(RoundsSurely);
HWY_EXPORT(CannotFlip);

}  // namespace

void SumTerms(const float* const* a, MatrixView<const float> panel,
              double* scratch, TermSums& sums) {
  ISOLOSS_ASSERT(panel.cols() == kDotLanes);
  HWY_DYNAMIC_DISPATCH(SumTerms)(a, panel, scratch, sums);
}

void SumExactly(const float* const* a, MatrixView<const float> panel,
                double* scratch, ExactSums& sums) {
  ISOLOSS_ASSERT(panel.cols() == kDotLanes);
  HWY_DYNAMIC_DISPATCH(SumExactly)(a, panel, scratch, sums);
}

void SumPairs(MatrixView<const float> a, MatrixView<const float> b,
              TermSums& sums) {
  ISOLOSS_ASSERT(a.cols() == kDotLanes && b.cols() == kDotLanes &&
                 a.rows() == b.rows());
  HWY_DYNAMIC_DISPATCH(SumPairs)(a, b, sums);
}

bool AreMultiples(double unit, const float* a, const float* b, size_t depth) {
  return HWY_DYNAMIC_DISPATCH(AreMultiples)(unit, a, b, depth);
}

void PackLanes(const float* const* rows, MatrixView<float> lanes) {
  ISOLOSS_ASSERT(lanes.cols() == kDotLanes);
  HWY_DYNAMIC_DISPATCH(PackLanes)(rows, lanes);
}

RowFacts FactsOf(const float* row, size_t depth) {
  return HWY_DYNAMIC_DISPATCH(FactsOf)(row, depth);
}

unsigned RoundsSurely(const double* exact, const RowFacts& a,
                      const LaneFacts& b, size_t depth, double* want) {
  return HWY_DYNAMIC_DISPATCH(RoundsSurely)(exact, a, b, depth, want);
}

unsigned CannotFlip(const double* exact, const double* highest,
                    const RowFacts& a, const LaneFacts& b, size_t depth,
                    double* want) {
  return HWY_DYNAMIC_DISPATCH(CannotFlip)(exact, highest, a, b, depth, want);
}

}  // namespace isoloss::oracle

#endif  // HWY_ONCE
