// One number of a computation, found from its result and confirmed by all of
// its elements.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/operations/explanation.h"
#include "isoloss/oracle/comparison.h"

namespace isoloss::operations {

/// The factor of a term by least squares: sum(x y) / sum(x^2).
class LeastSquares {
 public:
  /// `y`: what the result owes to the term. `x`: the term, taken once. Pairs
  /// that are not finite do not count.
  void Add(double x, double y);

  /// NaN if no term has a size.
  double factor() const;
  /// Standard error of the factor. Infinite if fewer than two elements tell.
  double error() const;

 private:
  double xx_ = 0.0;
  double xy_ = 0.0;
  double yy_ = 0.0;
  size_t count_ = 0;
};

/// A number that the result may have been computed by.
struct Fit {
  std::string name;  ///< "routed_scaled"
  LeastSquares sums;
  /// 0 has a name of its own in the catalogue.
  bool not_zero = false;
  /// What is told of the number, as a sentence without full stop.
  std::function<std::string(double number)> sentence;
  std::function<oracle::Comparison(double number)> compare;
  /// The number that was to be.
  double right = 1.0;
};

/// Of each fit the roundest number that leaves no others: of so few digits as
/// possible, or the inverse of such a number. Candidates lie within eight
/// standard errors of the factor. Nothing of a fit of which none leaves none,
/// or whose error is more than a tenth of the number.
std::vector<Trial> Confirmed(const std::vector<Fit>& fits);

}  // namespace isoloss::operations
