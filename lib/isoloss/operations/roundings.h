// Tests whether elements were rounded at random, as their remainders ask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/operations/check.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// An element lies between two numbers of its format, or on one.
struct Rounding {
  /// Its distance from the number toward zero, over that of both; negative: it
  /// lies on a number, or nobody knows between which ones.
  double remainder = -1.0;
  bool up = false;  ///< it was rounded away from zero
  bool negative = false;
  /// The probability of `up` may be off by so much from the remainder.
  double slack = 0.0;
};

/// Holds the roundings of one group, in the tensor's own orientation.
struct RoundingGroup {
  size_t cols = 0;
  std::vector<Rounding> all = {};
};

/// Counts the elements of a tensor that lie between two numbers.
struct Roundings {
  int64_t elements = 0;
  /// The mistake that was found, and a sentence about it; "" if roundings fit.
  std::string name = {};
  std::string sentence = {};

  bool fit() const { return name.empty(); }
};

/// Returns whether a code is the next one away from zero after `lower`, and the
/// element lies between the two. `scaled` is the element times its scale.
bool IsRoundedUp(const formats::Format& format, uint8_t code, float lower,
                 float scaled);

/// Judges the roundings of all groups, whose codes are right: each is one of
/// the two neighbours of its element.
///
/// Let element i have the remainder p_i, its distance from the lower neighbour
/// over that of both. It is rounded up with a probability q_i, which is at most
/// s_i from p_i: r random bits give s_i = 2^-r. Elements are independent. Let U
/// of n elements be rounded up. Bernstein's inequality says, for
/// V = sum q (1 - q):
///   P(|U - sum q| >= t) <= 2 exp(-t^2 / (2 (V + t / 3)))
/// So |U - sum p| > t + sum s has a probability of at most a for
///   t = L / 3 + sqrt(L^2 / 9 + 2 L V),  L = log(2 / a).
/// V is at most sum p (1 - p) + sum s. This is asked of all elements, of each
/// sign, of eighths of the remainders, and of rows and columns modulo 2 to 16.
/// All questions together have the level 10^-6.
///
/// Two elements with one random number and p_i <= p_j are never rounded up (i)
/// and down (j). Independent ones are, with the probability p_i (1 - p_j). If
/// 64 such pairs are expected, and an eighth of them is found at most,
/// Chernoff's bound on this is exp(-(7 / 8)^2 64 / 2) < 3 10^-11. Distances of
/// 1 to 32 rows or columns are tried.
Roundings JudgeRoundings(const std::vector<RoundingGroup>& groups);
/// Judges those of an operand's codes.
Roundings JudgeRoundings(const std::vector<const Side*>& sides,
                         const Codes& codes);
/// Returns a comparison of all judged elements. If roundings do not fit, none
/// is known to be right, since each may be by chance.
oracle::Comparison ComparisonOf(const Roundings& roundings);
/// Makes a finding about the roundings of an operand or tensor of that name.
Finding FindingOf(const OperationCase& given, const std::string& name,
                  const Roundings& roundings);

}  // namespace isoloss::operations
