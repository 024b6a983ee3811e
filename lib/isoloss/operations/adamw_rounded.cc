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
  RoundedAdamW(const Operation& operation, bool lerps, bool rounds_scalars)
      : operation_(operation),
        parameter_(TypeOf("parameter_before")),
        first_(TypeOf("exp_avg_before")),
        second_(TypeOf("exp_avg_sq_before")),
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
    return Parameter(At("parameter_before", i), RoundedOnTheWay(first_, first),
                     RoundedOnTheWay(second_, second));
  }

 private:
  double At(const char* name, size_t i) const {
    return static_cast<double>(operation_.Find(name)->values[i]);
  }
  Grid TypeOf(const char* name) const {
    return GridOf(*operation_.Find(name)).value_or(Grid::kFp32);
  }
  double Scalar(Grid grid, double value) const {
    return static_cast<double>(
        RoundTo(rounds_scalars_ ? grid : Grid::kFp32, value));
  }
  static Estimate Times(Grid grid, const Estimate& a, double scalar) {
    return RoundedOnTheWay(
        grid, a * scalar + Around(0.0, std::fabs(a.exact * scalar), 2));
  }
  /// Returns kept + weight times `added`, with three roundings.
  static Estimate Sum(const Estimate& kept, double weight, double added) {
    const double term = weight * added;
    return kept + Around(term, std::fabs(kept.exact) + std::fabs(term), 3);
  }
  Estimate First(double m, double g) const {
    if (lerps_) return Sum({.exact = m}, Scalar(first_, 1 - beta1_), g - m);
    return Sum(Times(first_, {.exact = m}, Scalar(first_, beta1_)),
               Scalar(first_, 1 - beta1_), g);
  }
  Estimate Second(double v, double g) const {
    return Sum(Times(second_, {.exact = v}, Scalar(second_, beta2_)),
               1 - beta2_, g * g);
  }
  Estimate Parameter(double p, const Estimate& first,
                     const Estimate& second) const {
    const double lr = operation_.Number("lr", 0);
    const double root = std::sqrt(second.exact);
    const double low = std::sqrt(std::max(0.0, second.exact - second.bound));
    const Estimate rounded_root = RoundedOnTheWay(
        second_,
        {.exact = root, .bound = root - low + oracle::kUnitRoundoff * root});
    const Estimate denominator = RoundedOnTheWay(
        second_,
        Times(second_, rounded_root,
              1 / Scalar(second_, std::sqrt(correction2_))) +
            Estimate{.exact = Scalar(second_, operation_.Number("eps", 0))});
    const double room = denominator.exact - denominator.bound;
    const double factor = -lr / correction1_;
    const double quotient = first.exact / denominator.exact;
    const double off =
        room > 0
            ? (first.bound + std::fabs(quotient) * denominator.bound) / room
            : HUGE_VAL;
    Estimate result = Sum(
        Times(
            parameter_, {.exact = p},
            Scalar(parameter_, 1 - lr * operation_.Number("weight_decay", 0))),
        factor, quotient);
    result.bound += std::fabs(factor) * off;
    return result;
  }

  const Operation& operation_;
  const Grid parameter_;
  const Grid first_;
  const Grid second_;
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
  bool is_fp32 = true;
  for (const std::string name : {"parameter", "exp_avg", "exp_avg_sq"}) {
    const Floats* left = operation.Find(name + "_after");
    const Floats& found = *operation.Find(name + "_before");
    if (left != nullptr && left->type != found.type) return {};
    if (!GridOf(found)) return {};
    is_fp32 = is_fp32 && found.type == "float32";
  }
  if (is_fp32 || operation.texts.contains("decay")) return {};
  std::vector<Trial> trials;
  for (const bool lerps : {false, true}) {
    for (const bool rounds_scalars : {false, true}) {
      const auto compare = [&operation, &after, part, grid, lerps,
                            rounds_scalars] {
        const RoundedAdamW adamw(operation, lerps, rounds_scalars);
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
