// Sums doubles without rounding, in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace isoloss {

/// An exact sum of finite doubles: an integer multiple of 2^-1074, wide enough
/// for 2^63 of the largest. So it doesn't depend on the order of the terms, and
/// partial sums can be added up anywhere.
///
/// Cost     an Add a few nanoseconds; a merge, Value and Pack below a
///          microsecond; 552 bytes.
/// Source   a fixed-point accumulator as in U. Kulisch, "Computer Arithmetic
///          and Validity", 2008.
class ExactSum {
 public:
  /// A packed sum has this number of integers.
  static constexpr size_t kLimbs = 68;

  /// Aborts if `term` is infinite or NaN: the caller counts those.
  void Add(double term);
  void Add(const ExactSum& other);

  /// The sum, rounded once, to nearest, ties to even; infinite if beyond the
  /// largest double. Zero is +0.
  double Value() const;
  /// The sum as high + low: high is Value() and low what it lacks, rounded.
  /// Only if Value() is finite.
  struct Parts {
    double high;
    double low;
  };
  Parts Split() const;

  /// Appends kLimbs integers. Those of up to 2^30 sums may be added, each to
  /// its counterpart, and unpacked as the sum of all.
  void Pack(std::vector<int64_t>& to) const;
  static ExactSum Unpack(std::span<const int64_t, kLimbs> limbs);

 private:
  static constexpr int kLimbBits = 32;
  /// Each Add changes a limb by less than 2^32.
  static constexpr int64_t kMaxPending = int64_t{1} << 30;

  /// Brings all limbs but the last, which has the sign, into [0, 2^32).
  void Carry();

  /// limbs_[i] counts 2^(32 i - 1074).
  std::array<int64_t, kLimbs> limbs_{};
  /// Adds since the last Carry, or how many it amounts to.
  int64_t pending_ = 0;
};

}  // namespace isoloss
