// One number of a computation, found from its result and confirmed by all of
// its elements.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/operations/explanation.h"
#include "isoloss/oracle/comparison.h"

namespace isoloss::operations {

/// The numbers that all elements of a result allow.
class FactorRange {
 public:
  /// An element allows numbers from `a` to `b`, or from `b` to `a`. NaN does
  /// not count.
  void Narrow(double a, double b);
  /// `value` is others + x times the number, rounded to `grid`, give or take
  /// `bound` for numbers up to 1, and in proportion for larger ones.
  void Add(double x, double others, float value, oracle::Grid grid,
           double bound);

  double low() const { return low_; }
  double high() const { return high_; }

 private:
  double low_ = -std::numeric_limits<double>::infinity();
  double high_ = std::numeric_limits<double>::infinity();
};

/// `number` to few digits, and inverses of such numbers, the roundest first.
std::vector<double> RoundNumbersNear(double number);

/// A number that the result may have been computed by.
struct Fit {
  std::string name;  ///< "routed_scaled"
  FactorRange range;
  /// 0 has a name of its own in the catalogue.
  bool not_zero = false;
  /// What is told of the number, as a sentence without full stop.
  std::function<std::string(double number)> sentence;
  std::function<oracle::Comparison(double number)> compare;
  /// The number that was to be.
  double right = 1.0;
};

/// Of each fit the roundest number that leaves no others: of so few digits as
/// possible, or the inverse of such a number. Nothing of a fit of which none
/// leaves none, or whose number is not told to a quarter of its size.
std::vector<Trial> Confirmed(const std::vector<Fit>& fits);

}  // namespace isoloss::operations
