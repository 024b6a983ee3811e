// Compares the optimizer's step with that of torch.optim.AdamW.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "isoloss/base/portable_math.h"
#include "isoloss/operations/check.h"
#include "isoloss/operations/estimates.h"
#include "isoloss/operations/fit.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

/// One update has these numbers and, if a mistake was made, these changes.
struct AdamWRule {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  double step = 1;  ///< of bias correction
  bool corrects_bias = true;
  bool decay_in_gradient = false;
  bool decay_after = false;  ///< the decay is that of the updated parameter
  bool eps_in_root = false;
  bool eps_uncorrected = false;    ///< added before the root is corrected
  bool swaps_corrections = false;  ///< the moments swap their corrections
  bool decay_without_lr = false;
  bool old_moments = false;  ///< the step uses the moments from before it
  double gradient_factor = 1.0;
  double step_factor = 1.0;
  bool zero_moments = false;
  bool skips = false;                  ///< nothing changes
  const Operation* moments = nullptr;  ///< has them; null: the checked one
};

/// These are 1 - beta^t of both moments, one number for a whole tensor.
struct Corrections {
  explicit Corrections(const AdamWRule& rule) {
    if (!rule.corrects_bias) return;
    first = Of(rule.beta1, rule.step);
    second = Of(rule.beta2, rule.step);
    if (rule.swaps_corrections) std::swap(first, second);
  }
  static double Of(double beta, double step) {
    return beta > 0 ? 1 - portable::Pow(beta, step) : 1.0;
  }

  double first = 1;
  double second = 1;
};

struct Updated {
  Estimate first;
  Estimate second;
  Estimate parameter;
};

double Denominator(const AdamWRule& rule, double second, double correction) {
  if (rule.eps_in_root) return std::sqrt(second / correction + rule.eps);
  if (rule.eps_uncorrected) {
    return (std::sqrt(second) + rule.eps) / std::sqrt(correction);
  }
  return std::sqrt(second / correction) + rule.eps;
}

/// Computes m' = b1 m + (1 - b1) g and v' = b2 v + (1 - b2) g^2, then p (1 - lr
/// wd) - lr / (1 - b1^t) m' / (sqrt(v' / (1 - b2^t)) + eps).
///
/// Bounds   Scalars are rounded to FP32 once. m' is also computed as
///          m + (1 - b1) (g - m): terms of at most |m| + |g| and five
///          roundings. v' is a sum of positive terms: six roundings. The root
///          halves that. With its own rounding, two of the correction and one
///          of eps, the denominator has at most 7. The step then has 7 + 4
///          besides the error of m'. The decayed parameter has 2, and the
///          difference is rounded.
Updated Update(const AdamWRule& rule, const Corrections& correction, double p,
               double g, double m, double v) {
  if (rule.skips) return {{.exact = m}, {.exact = v}, {.exact = p}};
  Updated result;
  g *= rule.gradient_factor;
  if (rule.decay_in_gradient) g += rule.weight_decay * p;
  const double first = rule.beta1 * m + (1 - rule.beta1) * g;
  const double second = rule.beta2 * v + (1 - rule.beta2) * g * g;
  result.first = Around(first, std::fabs(m) + std::fabs(g), 5);
  // This is tighter than the size of the terms, since each has its own factor.
  result.first.bound =
      oracle::Gamma(5) * (std::fabs(rule.beta1 * m) +
                          (1 - rule.beta1) * (2 * std::fabs(g) + std::fabs(m)) +
                          (rule.beta1 < 0.5 ? std::fabs(g) : std::fabs(m))) +
      5 * oracle::kTiny;
  result.second = Around(second, second, 6);
  const double denominator =
      Denominator(rule, rule.old_moments ? v : second, correction.second);
  const double factor = rule.step_factor * rule.lr / correction.first;
  const double step = factor * (rule.old_moments ? m : first) / denominator;
  const double decay = rule.decay_in_gradient  ? 0
                       : rule.decay_without_lr ? rule.weight_decay
                                               : rule.lr * rule.weight_decay;
  const double kept = p * (1 - decay);
  result.parameter.exact =
      rule.decay_after ? (p - step) * (1 - decay) : kept - step;
  // Squares below 2^-126 lose bits, so sqrt moves by at most sqrt(6 2^-149).
  const double underflow =
      second < 0x1p-120 ? std::sqrt(6 * oracle::kTiny / correction.second)
                        : 0.0;
  const double room = denominator - underflow;
  const double of_step =
      room > 0.0 ? std::fabs(step) * (oracle::Gamma(11) + underflow / room) +
                       std::fabs(factor) * result.first.bound / room
                 : (denominator > 0.0 ? HUGE_VAL : 0.0);
  result.parameter.bound = of_step +
                           oracle::Gamma(3) * (std::fabs(p) + std::fabs(step)) +
                           3 * oracle::kTiny;
  result.parameter.noise = oracle::RootOfSquares(
      std::sqrt(1.0 / 12.0) * oracle::Ulp(result.parameter.exact),
      std::sqrt(11.0 / 12.0) * oracle::Ulp(step));
  return result;
}

enum class Part { kFirst, kSecond, kParameter };
struct PartText {
  Part part;
  const char* tensor;
  Estimate Updated::*estimate;
};
constexpr PartText kParts[] = {
    {Part::kFirst, "exp_avg_after", &Updated::first},
    {Part::kSecond, "exp_avg_sq_after", &Updated::second},
    {Part::kParameter, "parameter_after", &Updated::parameter}};

Comparison Compare(const OperationCase& given, const PartText& part,
                   const AdamWRule& rule) {
  const Operation& operation = given.operation;
  const Floats& after = *operation.Find(part.tensor);
  const Operation& moments =
      rule.moments == nullptr ? operation : *rule.moments;
  const std::vector<float>& p = operation.Find("parameter_before")->values;
  const std::vector<float>& g = operation.Find("gradient")->values;
  const std::vector<float>& m = moments.Find("exp_avg_before")->values;
  const std::vector<float>& v = moments.Find("exp_avg_sq_before")->values;
  Comparison comparison(GridOf(after, part.tensor, given.where));
  const size_t cols = std::max<size_t>(after.Rows().cols(), 1);
  const Corrections corrections(rule);
  for (size_t i = 0; i < after.values.size(); ++i) {
    const auto at = [i](const std::vector<float>& values) {
      return static_cast<double>(values[i]);
    };
    const Updated updated =
        Update(rule, corrections, at(p), at(g), rule.zero_moments ? 0.0 : at(m),
               rule.zero_moments ? 0.0 : at(v));
    comparison.Add(i / cols, i % cols, after.values[i], updated.*part.estimate);
  }
  return comparison;
}

AdamWRule RuleOf(const Operation& operation) {
  return {.lr = operation.Number("lr", 0),
          .beta1 = operation.Number("beta1", 0),
          .beta2 = operation.Number("beta2", 0),
          .eps = operation.Number("eps", 0),
          .weight_decay = operation.Number("weight_decay", 0),
          .step = operation.Number("step", 1)};
}

struct AdamWMistake {
  const char* name;
  const char* sentence;
  void (*alter)(AdamWRule& rule);
};
constexpr AdamWMistake kAdamWMistakes[] = {
    {"bias_correction_early", "bias correction was that of the step before",
     [](AdamWRule& rule) { rule.step -= 1; }},
    {"bias_correction_late", "bias correction was that of the step after",
     [](AdamWRule& rule) { rule.step += 1; }},
    {"no_bias_correction", "moments were not corrected for their bias",
     [](AdamWRule& rule) { rule.corrects_bias = false; }},
    {"decay_in_gradient",
     "weight decay was added to the gradient, as in Adam with L2",
     [](AdamWRule& rule) { rule.decay_in_gradient = true; }},
    {"decay_missing", "the parameter did not decay",
     [](AdamWRule& rule) { rule.weight_decay = 0; }},
    {"decay_after", "the parameter decayed after its update, not before",
     [](AdamWRule& rule) { rule.decay_after = true; }},
    {"eps_in_root", "eps was added below the root",
     [](AdamWRule& rule) { rule.eps_in_root = true; }},
    {"eps_uncorrected",
     "eps was added to the root before its bias was corrected",
     [](AdamWRule& rule) { rule.eps_uncorrected = true; }},
    {"bias_corrections_swapped",
     "each moment was corrected for the bias of the other",
     [](AdamWRule& rule) { rule.swaps_corrections = true; }},
    {"decay_without_lr", "the decay was not multiplied by the learning rate",
     [](AdamWRule& rule) { rule.decay_without_lr = true; }},
    {"decay_twice", "the parameter decayed twice",
     [](AdamWRule& rule) { rule.weight_decay *= 2; }},
    {"moments_before", "the step was by the moments from before their update",
     [](AdamWRule& rule) { rule.old_moments = true; }},
    {"betas_swapped", "beta1 and beta2 were swapped",
     [](AdamWRule& rule) { std::swap(rule.beta1, rule.beta2); }},
    {"moments_zero", "moments began anew, from zero",
     [](AdamWRule& rule) { rule.zero_moments = true; }},
};

std::vector<Trial> Mistakes(const OperationCase& given, const PartText& part,
                            const AdamWRule& rule) {
  std::vector<Trial> trials;
  const auto add = [&](const char* name, const std::string& sentence,
                       const AdamWRule& altered) {
    trials.push_back({name, sentence, [&given, &part, altered] {
                        return std::optional(Compare(given, part, altered));
                      }});
  };
  for (const AdamWMistake& mistake : kAdamWMistakes) {
    AdamWRule altered = rule;
    mistake.alter(altered);
    add(mistake.name, mistake.sentence, altered);
  }
  if (given.previous != nullptr &&
      given.previous->Find("gradient")->extent ==
          given.operation.Find("gradient")->extent) {
    AdamWRule altered = rule;
    altered.moments = given.previous;
    add("moments_stale", "moments were those before the step before", altered);
  }
  return trials;
}

// ---- mistakes whose size is found from the tensors themselves ---------------

/// The numbers are of one element of each tensor, at the same place.
struct Element {
  double p;
  double g;
  double m;
  double v;
};

class AdamWFits {
 public:
  AdamWFits(const OperationCase& given, const PartText& part,
            const AdamWRule& rule)
      : given_(given), part_(part), rule_(rule), corrections_(rule) {}

  std::vector<Trial> Trials() {
    const bool of_parameter = part_.part == Part::kParameter;
    AdamWRule skipped = rule_;
    skipped.skips = true;
    // "Not updated" says more than that a factor was 0.
    if (const Comparison as_before = Compare(given_, part_, skipped);
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
      return Compare(given_, part_, altered);
    };
    return fit;
  }
  /// Calls use(element, its value after the step, its grid) for each element.
  template <typename Use>
  void ForEach(const PartText& part, const Use& use) const {
    const Floats* after = given_.operation.Find(part.tensor);
    if (after == nullptr) return;
    const Grid grid = GridOf(*after, part.tensor, given_.where);
    for (size_t i = 0; i < after->values.size(); ++i) {
      const auto at = [&](const char* input) {
        return static_cast<double>(given_.operation.Find(input)->values[i]);
      };
      use(Element{at("parameter_before"), at("gradient"), at("exp_avg_before"),
                  at("exp_avg_sq_before")},
          after->values[i], grid);
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
      const Updated updated = Update(once, corrections_, e.p, e.g, e.m, e.v);
      fit.range.Add(x, others, after, grid, (updated.*part.estimate).bound);
    });
  }
  bool HasFiniteGradient() const {
    return std::ranges::all_of(given_.operation.Find("gradient")->values,
                               [](float g) { return std::isfinite(g); });
  }
  double Parameter(const AdamWRule& rule, const Element& e) const {
    return Update(rule, corrections_, e.p, e.g, e.m, e.v).parameter.exact;
  }

  static std::string GradientText(double factor) {
    if (factor == 0.0) return "the gradient was taken as zero";
    if (factor == -1.0) return "the gradient had the other sign";
    return fmt::format(
        "the gradient was {:.9g} times what was recorded: clipped or averaged "
        "otherwise",
        factor);
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
    if (is_zero || rule_.weight_decay == 0.0) return;
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
      const Updated updated = Update(rule_, corrections_, e.p, e.g, e.m, e.v);
      const double kept = e.p * (1 - rule_.lr * rule_.weight_decay);
      const double bound = updated.parameter.bound;
      const double least = kept - Boundary(grid, after, true) - bound;
      const double most = kept - Boundary(grid, after, false) + bound;
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
  std::vector<Fit> fits_;
};

}  // namespace

void CheckAdamW(const OperationCase& given, std::vector<Finding>& findings) {
  CheckStateBetweenSteps(given, findings);
  if (given.operation.texts.contains("expected")) {
    return CheckSkippedStep(given, findings);
  }
  const AdamWRule rule = RuleOf(given.operation);
  for (const PartText& part : kParts) {
    if (given.operation.Find(part.tensor) == nullptr) continue;
    Finding finding =
        FindingOf(given, part.tensor, part.tensor, Compare(given, part, rule));
    if (!finding.is_right()) {
      AdamWFits fits(given, part, rule);
      std::vector<Trial> trials = TrialsOfRoundedAdamW(given, part.tensor);
      std::ranges::move(Mistakes(given, part, rule),
                        std::back_inserter(trials));
      Explain(trials, finding, [&] { return fits.Trials(); });
      finding.places =
          PlacesOf(finding.comparison,
                   given.operation.Find(part.tensor)->Rows().rows(), "rows");
    }
    findings.push_back(std::move(finding));
  }
}

}  // namespace isoloss::operations
