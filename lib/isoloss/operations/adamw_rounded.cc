// Computes torch.optim.AdamW for parameters and moments that are not FP32: each
// elementwise step is rounded to their type.
#include <algorithm>
#include <cmath>
#include <string>

#include "isoloss/base/portable_math.h"
#include "isoloss/operations/check.h"
#include "isoloss/operations/estimates.h"

namespace isoloss::operations {
namespace {

using oracle::Estimate;
using oracle::Grid;

/// Versions of torch compute the update in several ways. Scalars are FP32, or
/// of the tensors' type; exp_avg is interpolated in one step, or in two.
class RoundedAdamW {
 public:
  RoundedAdamW(const Operation& operation, Grid grid, bool lerps,
               bool rounds_scalars)
      : operation_(operation),
        grid_(grid),
        lerps_(lerps),
        rounds_scalars_(rounds_scalars),
        beta1_(operation.Number("beta1", 0)),
        beta2_(operation.Number("beta2", 0)),
        correction1_(1 - portable::Pow(beta1_, operation.Number("step", 1))),
        correction2_(1 - portable::Pow(beta2_, operation.Number("step", 1))) {}

  Estimate Of(const std::string& part, size_t i) const {
    const Estimate first = First(At("exp_avg_before", i), At("gradient", i));
    if (part == "exp_avg_after") return first;
    const Estimate second =
        Second(At("exp_avg_sq_before", i), At("gradient", i));
    if (part == "exp_avg_sq_after") return second;
    return Parameter(At("parameter_before", i), Rounded(first),
                     Rounded(second));
  }

 private:
  double At(const char* name, size_t i) const {
    return static_cast<double>(operation_.Find(name)->values[i]);
  }
  double Scalar(double value) const {
    return static_cast<double>(
        RoundTo(rounds_scalars_ ? grid_ : Grid::kFp32, value));
  }
  Estimate Rounded(const Estimate& step) const {
    return RoundedOnTheWay(grid_, step);
  }
  Estimate Times(const Estimate& a, double scalar) const {
    return Rounded(a * scalar + Around(0.0, std::fabs(a.exact * scalar), 2));
  }
  /// Returns kept + weight times `added`, with three roundings.
  static Estimate Sum(const Estimate& kept, double weight, double added) {
    const double term = weight * added;
    return kept + Around(term, std::fabs(kept.exact) + std::fabs(term), 3);
  }
  Estimate First(double m, double g) const {
    if (lerps_) return Sum({.exact = m}, Scalar(1 - beta1_), g - m);
    return Sum(Times({.exact = m}, Scalar(beta1_)), Scalar(1 - beta1_), g);
  }
  Estimate Second(double v, double g) const {
    return Sum(Times({.exact = v}, Scalar(beta2_)), 1 - beta2_, g * g);
  }
  Estimate Parameter(double p, const Estimate& first,
                     const Estimate& second) const {
    const double lr = operation_.Number("lr", 0);
    const double root = std::sqrt(second.exact);
    const double low = std::sqrt(std::max(0.0, second.exact - second.bound));
    const Estimate denominator = Rounded(
        Times(Rounded({.exact = root,
                       .bound = root - low + oracle::kUnitRoundoff * root}),
              1 / Scalar(std::sqrt(correction2_))) +
        Estimate{.exact = Scalar(operation_.Number("eps", 0))});
    const double room = denominator.exact - denominator.bound;
    const double factor = -lr / correction1_;
    const double quotient = first.exact / denominator.exact;
    const double off =
        room > 0
            ? (first.bound + std::fabs(quotient) * denominator.bound) / room
            : HUGE_VAL;
    Estimate result =
        Sum(Times({.exact = p},
                  Scalar(1 - lr * operation_.Number("weight_decay", 0))),
            factor, quotient);
    result.bound += std::fabs(factor) * off;
    return result;
  }

  const Operation& operation_;
  const Grid grid_;
  const bool lerps_;
  const bool rounds_scalars_;
  const double beta1_;
  const double beta2_;
  const double correction1_;
  const double correction2_;
};

}  // namespace

std::vector<Trial> TrialsOfRoundedAdamW(const OperationCase& given,
                                        const std::string& part) {
  const Operation& operation = given.operation;
  const Floats& after = *operation.Find(part);
  const Grid grid = GridOf(after, part, given.where);
  for (const char* name : {"parameter_before", "gradient", "exp_avg_before",
                           "exp_avg_sq_before"}) {
    if (operation.Find(name)->type != after.type) return {};
  }
  if (grid == Grid::kFp32) return {};
  std::vector<Trial> trials;
  for (const bool lerps : {false, true}) {
    for (const bool rounds_scalars : {false, true}) {
      const auto compare = [&operation, &after, part, grid, lerps,
                            rounds_scalars] {
        const RoundedAdamW adamw(operation, grid, lerps, rounds_scalars);
        oracle::Comparison comparison(grid);
        const size_t cols = std::max<size_t>(after.Rows().cols(), 1);
        for (size_t i = 0; i < after.values.size(); ++i) {
          comparison.Add(i / cols, i % cols, after.values[i],
                         adamw.Of(part, i));
        }
        return std::optional(comparison);
      };
      trials.push_back({.name = "steps_rounded",
                        .sentence = "each elementwise step was rounded",
                        .compare = compare,
                        .is_right = true});
    }
  }
  return trials;
}

}  // namespace isoloss::operations
