// Compares Muon's momentum after a step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "isoloss/operations/estimates.h"
#include "isoloss/operations/fit.h"
#include "isoloss/operations/muon.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

/// The momentum is kept times that before the step, plus added times the
/// gradient.
struct Momentum {
  double kept = 0;
  double added = 0;
  double decay = 0;  ///< times the parameter, is part of the gradient
  const Operation* source = nullptr;  ///< has the momentum before the step
  bool rounds_twice = false;
};

double At(const Operation& operation, const char* name, size_t i) {
  return static_cast<double>(operation.Find(name)->values[i]);
}

/// The factors are rounded to FP32. The sum is also computed as
/// m + (1 - kept) (g - m), which has terms of at most |m| + |g| and five
/// roundings. A decay in the gradient has three roundings of its own.
Estimate MomentumOf(const Operation& operation, const Momentum& rule, Grid grid,
                    size_t i) {
  double g = At(operation, "gradient", i);
  double size = std::fabs(g);
  if (rule.decay != 0.0) {
    const double decay = rule.decay * At(operation, "parameter_before", i);
    g += decay;
    size += std::fabs(decay);
  }
  const double m = At(*rule.source, "momentum_before", i);
  if (rule.rounds_twice) {
    return RoundedOnTheWay(grid, Around(rule.kept * m, std::fabs(m), 2)) +
           Around(rule.added * g, rule.added * size, 5);
  }
  return Around(rule.kept * m + rule.added * g,
                std::fabs(m) + (rule.added == 1.0 ? 1.0 : rule.added) * size,
                rule.decay == 0.0 ? 5 : 8);
}

class MomentumCheck {
 public:
  MomentumCheck(const OperationCase& given, const Floats& after)
      : given_(given),
        operation_(given.operation),
        after_(after),
        grid_(GridOf(after, "momentum_after", given.where)) {}

  Finding Find() {
    const double beta = operation_.Number("momentum", 0);
    const std::string rule = operation_.Text("momentum_rule");
    const bool is_known = !rule.empty();
    const bool is_sum = rule == "sum";
    Momentum right = Of(beta, is_sum);
    Comparison comparison = Compare(right);
    if (!is_known && comparison.other() > 0) {
      Comparison sum = Compare(Of(beta, true));
      if (sum.other() < comparison.other()) {
        comparison = std::move(sum);
        right = Of(beta, true);
      }
    }
    Finding finding = FindingOf(given_, "momentum_after", "momentum_after",
                                std::move(comparison));
    if (finding.is_right()) return finding;
    Explain(Trials(beta, right, is_known, is_sum), finding,
            [&] { return Fits(right); });
    finding.places = PlacesOf(finding.comparison, after_.Rows().rows(), "rows");
    return finding;
  }

 private:
  Momentum Of(double beta, bool is_sum) const {
    const bool is_l2 = operation_.Text("decay") == "l2";
    return {.kept = beta,
            .added = is_sum ? 1.0 : 1 - beta,
            .decay = is_l2 ? operation_.Number("weight_decay", 0) : 0.0,
            .source = &operation_};
  }
  Comparison Compare(const Momentum& rule) const {
    Comparison comparison(grid_);
    const size_t cols = std::max<size_t>(after_.Rows().cols(), 1);
    for (size_t i = 0; i < after_.values.size(); ++i) {
      comparison.Add(i / cols, i % cols, after_.values[i],
                     MomentumOf(operation_, rule, grid_, i));
    }
    return comparison;
  }
  std::vector<Trial> Trials(double beta, const Momentum& right, bool is_known,
                            bool is_sum) const {
    std::vector<Trial> trials;
    const auto add = [&](const char* name, const char* sentence,
                         const Momentum& rule, bool is_right = false) {
      trials.push_back(
          {.name = name,
           .sentence = sentence,
           .compare = [this, rule] { return std::optional(Compare(rule)); },
           .is_right = is_right});
    };
    if (grid_ != Grid::kFp32) {
      Momentum twice = right;
      twice.rounds_twice = true;
      add("steps_rounded", "each elementwise step was rounded", twice, true);
    }
    Momentum altered = right;
    altered.kept = 1.0;
    altered.added = 0.0;
    add("not_updated", "the momentum was not updated", altered);
    if (is_known) {
      add(is_sum ? "momentum_lerp" : "momentum_sum",
          is_sum ? "the gradient counted by 1 - momentum, not by 1"
                 : "the gradient counted by 1, not by 1 - momentum",
          Of(beta, !is_sum));
    }
    altered = right;
    altered.kept = 0.0;
    add("momentum_zero", "the momentum began anew, from zero", altered);
    altered = right;
    altered.decay =
        altered.decay == 0.0 ? operation_.Number("weight_decay", 0) : 0.0;
    if (altered.decay != right.decay) {
      add(right.decay == 0.0 ? "decay_in_gradient" : "decay_decoupled",
          right.decay == 0.0 ? "weight decay was added to the gradient"
                             : "weight decay was not added to the gradient",
          altered);
    }
    const Operation* last = given_.previous;
    if (last != nullptr &&
        last->Find("momentum_before")->extent == after_.extent) {
      altered = right;
      altered.source = last;
      add("momentum_stale", "the momentum was that before the step before",
          altered);
    }
    return trials;
  }
  /// Returns fits of the gradient's size and of the momentum's factor.
  std::vector<Trial> Fits(const Momentum& right) const {
    Fit gradient;
    gradient.name = "gradient_scaled";
    gradient.sentence = GradientText;
    gradient.compare = [this, right](double factor) {
      Momentum altered = right;
      altered.added *= factor;
      return Compare(altered);
    };
    Fit momentum;
    momentum.name = "momentum_off";
    momentum.right = right.kept;
    momentum.sentence = [declared = right.kept](double number) {
      return fmt::format("momentum was {:.9g}, not {:.9g}", number, declared);
    };
    const bool is_sum = right.added == 1.0;
    momentum.compare = [this, right, is_sum](double number) {
      Momentum altered = right;
      altered.kept = number;
      if (!is_sum) altered.added = 1 - number;
      return Compare(altered);
    };
    for (size_t i = 0; i < after_.values.size(); ++i) {
      const Estimate due = MomentumOf(operation_, right, grid_, i);
      const double m = At(operation_, "momentum_before", i);
      const double g = At(operation_, "gradient", i);
      gradient.range.Add(right.added * g, due.exact - right.added * g,
                         after_.values[i], grid_, due.bound);
      momentum.range.Add(is_sum ? m : m - g, g, after_.values[i], grid_,
                         due.bound);
    }
    return Confirmed({gradient, momentum});
  }

  const OperationCase& given_;
  const Operation& operation_;
  const Floats& after_;
  const Grid grid_;
};

}  // namespace

void CheckMomentum(const OperationCase& given, std::vector<Finding>& findings) {
  const Floats* after = given.operation.Find("momentum_after");
  if (after == nullptr) return;
  findings.push_back(MomentumCheck(given, *after).Find());
}

}  // namespace isoloss::operations
