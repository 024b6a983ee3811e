// A Domain describes the values that a column of a log may hold. A Field
// (field.h) has no default for it, so that a column without a domain does not
// compile.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace isoloss::runlog {

/// Says what a value outside of its domain proves.
enum class Fault {
  kRun,   ///< the run went wrong: a sound file can hold such a value
  kFile,  ///< the file is damaged or was edited: no run writes such a value
};

/// Names a rule that a column must keep besides its own range; relations.def
/// has the rule and the check of each.
enum class Relation : uint32_t {
#define ISOLOSS_RELATION(relation, ...) relation,
#include "isoloss/runlog/relations.def"
#undef ISOLOSS_RELATION
};

/// FP32 has no larger finite number.
inline constexpr double kMostFp32 = static_cast<double>(FLT_MAX);

/// Describes the values that a column may hold. Sets of relations are bits by
/// Relation.
class Domain {
 public:
  /// Allows any value of texts and truths.
  static constexpr Domain Text() { return Domain(Kind::kText); }
  /// Allows any whole number.
  static constexpr Domain Whole() { return Domain(Kind::kWhole, Fault::kFile); }
  /// Allows any whole number but 0, which stands for none.
  static constexpr Domain Digest() {
    Domain domain = Whole();
    domain.nonzero_ = true;
    return domain;
  }
  /// Allows any whole number from 0.
  static constexpr Domain Seed() {
    Domain domain = Whole();
    domain.least_ = 0;
    return domain;
  }
  /// Allows a whole number of at least `least` that FP64 holds exactly.
  static constexpr Domain Count(double least = 0, double most = kMostCount) {
    Domain domain = Whole();
    domain.least_ = least;
    domain.most_ = most;
    return domain;
  }
  /// Allows numbers of steps, which ascend in the first column of a group.
  static constexpr Domain Step(double first = 1) {
    Domain domain = Count(first);
    domain.ascending_ = true;
    return domain;
  }
  /// Allows only 0: a sound run can't have any other value.
  static constexpr Domain Zero() { return Count(0, 0).Accusing(Fault::kRun); }
  /// Allows a finite number in [least, most].
  static constexpr Domain Real(double least = -DBL_MAX, double most = DBL_MAX) {
    Domain domain(Kind::kReal, Fault::kRun);
    domain.least_ = least;
    domain.most_ = most;
    return domain;
  }
  /// Allows a finite number above 0, at most `most`.
  static constexpr Domain Positive(double most = DBL_MAX) {
    Domain domain = Real(0, most);
    domain.nonzero_ = true;
    return domain;
  }
  /// Allows a finite number that FP32 can hold.
  static constexpr Domain Fp32() { return Real(-kMostFp32, kMostFp32); }
  /// Allows an L2 norm of at most 2^53 FP32 numbers, each below 2^128.
  static constexpr Domain Norm() { return Real(0, 0x1p155); }
  /// Allows a norm, or an inner product over one, over a norm other than 0,
  /// which is at least 2^-149, FP32's smallest magnitude. The difference of two
  /// tensors has up to twice their norm.
  static constexpr Domain Ratio(double least = 0) {
    return Real(least == 0 ? 0 : -kMostRatio, kMostRatio);
  }
  /// Allows a span of time: clocks count nanoseconds in 63 bits.
  static constexpr Domain Seconds() { return Real(0, 9223372037); }

  constexpr Domain OrNan() const {
    Domain domain = *this;
    domain.nan_ = true;
    return domain;
  }
  constexpr Domain OrInfinity() const {
    Domain domain = *this;
    domain.infinity_ = true;
    return domain;
  }
  constexpr Domain OrAnyInfinity() const {
    Domain domain = OrInfinity();
    domain.minus_infinity_ = true;
    return domain;
  }
  constexpr Domain Accusing(Fault fault) const {
    Domain domain = *this;
    domain.fault_ = fault;
    return domain;
  }
  constexpr Domain With(Relation relation) const {
    Domain domain = *this;
    domain.relations_ |= Bit(relation);
    return domain;
  }

  /// `value` may be NaN or infinite.
  bool Contains(double value) const;
  bool Contains(int64_t value) const;
  bool Contains(int32_t value) const { return Contains(int64_t{value}); }

  bool is_text() const { return kind_ == Kind::kText; }
  bool is_whole() const { return kind_ == Kind::kWhole; }
  /// A digest is a whole number without limits: digests are only equal or not.
  bool is_digest() const { return is_whole() && std::isinf(least_); }
  bool ascending() const { return ascending_; }
  Fault fault() const { return fault_; }
  bool Has(Relation relation) const {
    return (relations_ & Bit(relation)) != 0;
  }
  uint32_t relations() const { return relations_; }

  /// Returns the range alone, such as "finite, at least 0"; "" for text.
  std::string Range() const;
  /// Returns the range and the rules of the relations.
  std::string Describe() const;

 private:
  /// Whole numbers up to here are exact in FP64.
  static constexpr double kMostCount = 0x1p53;
  static constexpr double kMostRatio = 0x1p305;

  enum class Kind { kText, kWhole, kReal };
  constexpr explicit Domain(Kind kind, Fault fault = Fault::kFile)
      : kind_(kind), fault_(fault) {}
  static constexpr uint32_t Bit(Relation relation) {
    return uint32_t{1} << static_cast<uint32_t>(relation);
  }

  Kind kind_;
  Fault fault_;
  double least_ = -std::numeric_limits<double>::infinity();
  double most_ = std::numeric_limits<double>::infinity();
  bool nonzero_ = false;
  bool nan_ = false;
  bool infinity_ = false;
  bool minus_infinity_ = false;
  bool ascending_ = false;
  uint32_t relations_ = 0;
};

}  // namespace isoloss::runlog
