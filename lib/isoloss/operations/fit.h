// Finds one number of a computation, and confirms it by all elements.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/operations/explanation.h"
#include "isoloss/oracle/comparison.h"

namespace isoloss::operations {

/// All elements of a result allow the numbers of this range.
class FactorRange {
 public:
  /// Takes an element that allows numbers from `a` to `b`, or from `b` to `a`.
  /// NaN does not count.
  void Narrow(double a, double b);
  /// Takes an element: `value` is others + x times the number, rounded to
  /// `grid`, to nearest or at random. It may be off by `bound` for numbers up
  /// to 1, in proportion for larger ones.
  void Add(double x, double others, float value, oracle::Grid grid,
           double bound, bool at_random = false);

  double low() const { return low_; }
  double high() const { return high_; }

 private:
  double low_ = -std::numeric_limits<double>::infinity();
  double high_ = std::numeric_limits<double>::infinity();
};

/// Returns the end of what is rounded to `value`, above or below it.
double EdgeOf(oracle::Grid grid, float value, bool up, bool at_random);

/// Returns `number` to few digits, and inverses of such, the roundest first.
std::vector<double> RoundNumbersNear(double number);

/// The result may have been computed by this number.
struct Fit {
  std::string name;  ///< "routed_scaled"
  FactorRange range;
  /// The catalogue has 0 under another name.
  bool not_zero = false;
  /// Returns what is said about the number, as a sentence without full stop.
  std::function<std::string(double number)> sentence;
  std::function<oracle::Comparison(double number)> compare;
  /// The right computation has this number.
  double right = 1.0;
};

/// Says that a gradient was so many times what was recorded.
std::string GradientText(double factor);

/// Returns, for each fit, the roundest number that leaves no wrong element: it
/// has the fewest digits, or is the inverse of such a number. A fit gives no
/// trial if no number does so, or if its range is wider than a quarter of it.
std::vector<Trial> Confirmed(const std::vector<Fit>& fits);

}  // namespace isoloss::operations
