// Tests whether elements were rounded at random, as their remainders ask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// Counts the elements of an operand that lie between two codes.
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
/// over that of both. It is rounded up with a probability q_i, and r random
/// bits move q_i from p_i by 2^-r at most. Elements are independent. Let U of n
/// elements be rounded up. Bernstein's inequality says, for V = sum q (1 - q):
///   P(|U - sum q| >= t) <= 2 exp(-t^2 / (2 (V + t / 3)))
/// So |U - sum p| > t + n 2^-r has a probability of at most a for
///   t = L / 3 + sqrt(L^2 / 9 + 2 L V),  L = log(2 / a).
/// V is at most sum p (1 - p) + n 2^-r. This is asked of all elements, of each
/// sign, of eighths of the remainders, and of rows and columns modulo 2 to 16.
/// All questions together have the level 10^-6.
///
/// Two elements with one random number and p_i <= p_j are never rounded up (i)
/// and down (j). Independent ones are, with the probability p_i (1 - p_j). If
/// 64 such pairs are expected, and an eighth of them is found at most,
/// Chernoff's bound on this is exp(-(7 / 8)^2 64 / 2) < 3 10^-11. Distances of
/// 1 to 32 rows or columns are tried.
Roundings JudgeRoundings(const std::vector<const Side*>& sides,
                         const Codes& codes);

}  // namespace isoloss::operations
