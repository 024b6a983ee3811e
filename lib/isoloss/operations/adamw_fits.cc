// Finds the numbers by which an AdamW step differs from the right one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "isoloss/operations/adamw.h"
#include "isoloss/operations/estimates.h"
#include "isoloss/operations/fit.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Grid;

class AdamWFits {
 public:
  AdamWFits(const OperationCase& given, const PartText& part,
            const AdamWRule& rule)
      : given_(given),
        part_(part),
        rule_(rule),
        corrections_(rule),
        is_random_(IsRandomParameter(given.operation, part)) {}

  std::vector<Trial> Trials() {
    const bool of_parameter = part_.part == Part::kParameter;
    AdamWRule skipped = rule_;
    skipped.skips = true;
    // "Not updated" says more than that a factor was 0.
    if (const Comparison as_before = CompareBy(skipped);
        as_before.other() == 0) {
      return {{"not_updated",
               std::string(of_parameter ? "the parameter was not updated"
                                        : "the moments were not updated") +
                   (HasFiniteGradient()
                        ? ""
                        : ", since the gradient is not finite: if the step was "
                          "to be skipped, say expected = \"skipped\""),
               [as_before] { return std::optional(as_before); }}};
    }
    if (part_.part != Part::kSecond) AddGradient();
    if (part_.part == Part::kSecond) AddSquaredGradient();
    if (of_parameter) {
      AddRate();
      AddDecay();
      AddEps();
    }
    if (part_.part != Part::kSecond) {
      AddBeta("beta1_off", kParts[0], &AdamWRule::beta1,
              [](const Element& e) { return std::pair(e.g, e.m); });
    }
    if (part_.part != Part::kFirst) {
      AddBeta("beta2_off", kParts[1], &AdamWRule::beta2,
              [](const Element& e) { return std::pair(e.g * e.g, e.v); });
    }
    return Confirmed(fits_);
  }

 private:
  using Sentence = std::function<std::string(double)>;
  using Alter = std::function<void(AdamWRule& rule, double number)>;

  Fit& AddFit(const char* name, double right, const Sentence& sentence,
              const Alter& alter) {
    Fit& fit = fits_.emplace_back();
    fit.name = name;
    fit.right = right;
    fit.sentence = sentence;
    fit.compare = [this, alter](double number) {
      AdamWRule altered = rule_;
      alter(altered, number);
      return CompareBy(altered);
    };
    return fit;
  }
  Comparison CompareBy(const AdamWRule& rule) const {
    return is_random_ ? CompareRandom(given_, rule)
                      : Compare(given_, part_, rule);
  }
  /// Calls use(element, its value after the step, its grid) for each element.
  template <typename Use>
  void ForEach(const PartText& part, const Use& use) const {
    const Floats* after = given_.operation.Find(part.tensor);
    if (after == nullptr || !GridOf(*after)) return;
    const Grid grid = GridOf(*after, part.tensor, given_.where);
    for (size_t i = 0; i < after->values.size(); ++i) {
      use(ElementOf(given_.operation, rule_, i), after->values[i], grid);
    }
  }
  /// Adds a fit of the factor of one term. `term` gives, for an element, that
  /// term taken once and the sum of all remaining terms. An update by `once` is
  /// as exact as the result may be.
  template <typename Term>
  void Add(const char* name, const PartText& part, double right,
           const AdamWRule& once, const Term& term, const Sentence& sentence,
           const Alter& alter) {
    Fit& fit = AddFit(name, right, sentence, alter);
    ForEach(part, [&](const Element& e, float after, Grid grid) {
      const auto [x, others] = term(e);
      const Updated updated = Update(once, corrections_, e);
      fit.range.Add(x, others, after, grid, (updated.*part.estimate).bound,
                    is_random_ && part.part == Part::kParameter);
    });
  }
  bool HasFiniteGradient() const {
    return std::ranges::all_of(given_.operation.Find("gradient")->values,
                               [](float g) { return std::isfinite(g); });
  }
  double Parameter(const AdamWRule& rule, const Element& e) const {
    return Update(rule, corrections_, e).parameter.exact;
  }

  void AddGradient() {
    Add(
        "gradient_scaled", kParts[0], 1.0, rule_,
        [this](const Element& e) {
          return std::pair((1 - rule_.beta1) * e.g, rule_.beta1 * e.m);
        },
        GradientText,
        [](AdamWRule& rule, double f) { rule.gradient_factor = f; });
  }
  void AddSquaredGradient() {
    Fit& fit =
        AddFit("gradient_scaled", 1.0, GradientText,
               [](AdamWRule& rule, double f) { rule.gradient_factor = f; });
    FactorRange square;
    ForEach(kParts[1], [&](const Element& e, float after, Grid grid) {
      const double others = rule_.beta2 * e.v;
      const double once = (1 - rule_.beta2) * e.g * e.g;
      square.Add(once, others, after, grid,
                 Around(others + once, others + once, 6).bound);
    });
    fit.range.Narrow(std::sqrt(std::max(0.0, square.low())),
                     std::sqrt(square.high()));
  }

  /// Adds fits of the rate: of the parameter's whole change, and of the step
  /// without the decay.
  void AddRate() {
    AdamWRule once = rule_;
    const bool is_zero = rule_.lr == 0.0;
    if (is_zero) once.lr = 1.0;
    Add(
        "lr_off", kParts[2], is_zero ? 0.0 : 1.0, once,
        [this, once](const Element& e) {
          return std::pair(Parameter(once, e) - e.p, e.p);
        },
        [is_zero](double f) {
          return is_zero ? fmt::format("the learning rate was {:.9g}, not 0", f)
                         : fmt::format(
                               "the learning rate was {:.9g} times what was "
                               "recorded",
                               f);
        },
        [once](AdamWRule& rule, double f) { rule.lr = once.lr * f; });
    if (is_zero || rule_.weight_decay == 0.0 || rule_.decay_in_gradient) return;
    once.weight_decay = 0.0;
    Add(
        "step_scaled", kParts[2], 1.0, rule_,
        [this, once](const Element& e) {
          return std::pair(Parameter(once, e) - e.p,
                           e.p * (1 - rule_.lr * rule_.weight_decay));
        },
        [](double f) {
          return f == 0.0
                     ? std::string("the parameter decayed and was not updated")
                     : fmt::format(
                           "the step was {:.9g} times what moments and "
                           "learning rate give, the decay was right",
                           f);
        },
        [](AdamWRule& rule, double f) { rule.step_factor = f; });
  }
  void AddDecay() {
    if (rule_.decay_in_gradient) return;
    AdamWRule without = rule_;
    without.weight_decay = 0.0;
    Add(
        "decay_off", kParts[2], rule_.weight_decay, rule_,
        [this, without](const Element& e) {
          return std::pair(-rule_.lr * e.p, Parameter(without, e));
        },
        [declared = rule_.weight_decay](double decay) {
          return fmt::format("the parameter decayed by {:.9g}, not by {:.9g}",
                             decay, declared);
        },
        [](AdamWRule& rule, double decay) { rule.weight_decay = decay; });
  }
  /// Adds a fit of eps, by step (root + eps) = lr / (1 - b1^t) m'.
  void AddEps() {
    Fit& fit = AddFit(
        "eps_off", rule_.eps,
        [declared = rule_.eps](double eps) {
          return fmt::format("eps was {:.9g}, not {:.9g}", eps, declared);
        },
        [](AdamWRule& rule, double eps) { rule.eps = eps; });
    ForEach(kParts[2], [&](const Element& e, float after, Grid grid) {
      const Updated updated = Update(rule_, corrections_, e);
      const double kept = e.p * (1 - rule_.lr * rule_.weight_decay);
      const double bound = updated.parameter.bound;
      const double least = kept - EdgeOf(grid, after, true, is_random_) - bound;
      const double most = kept - EdgeOf(grid, after, false, is_random_) + bound;
      if (!(least * most > 0.0)) return;  // any eps gives such a step
      const double root = std::sqrt(updated.second.exact / corrections_.second);
      const double step = rule_.lr / corrections_.first * updated.first.exact;
      fit.range.Narrow(step / least - root, step / most - root);
    });
  }
  /// Adds a fit of a beta, by b m + (1 - b) g = g + b (m - g).
  template <typename Inputs>
  void AddBeta(const char* name, const PartText& part, double AdamWRule::*beta,
               const Inputs& inputs) {
    Add(
        name, part, rule_.*beta, rule_,
        [inputs](const Element& e) {
          const auto [added, kept] = inputs(e);
          return std::pair(kept - added, added);
        },
        [text = std::string(name, 5), declared = rule_.*beta](double value) {
          return fmt::format("{} was {:.9g}, not {:.9g}", text, value,
                             declared);
        },
        [beta](AdamWRule& rule, double value) { rule.*beta = value; });
  }

  const OperationCase& given_;
  const PartText& part_;
  const AdamWRule& rule_;
  const Corrections corrections_;
  const bool is_random_;
  std::vector<Fit> fits_;
};

}  // namespace

std::vector<Trial> FitsOfAdamW(const OperationCase& given, const PartText& part,
                               const AdamWRule& rule) {
  return AdamWFits(given, part, rule).Trials();
}

}  // namespace isoloss::operations
