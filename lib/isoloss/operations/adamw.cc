// The optimizer: torch.optim.AdamW.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "isoloss/base/portable_math.h"
#include "isoloss/operations/check.h"
#include "isoloss/operations/estimates.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

/// The numbers of one update, and what of it may be otherwise.
struct AdamWRule {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  double step = 1;  ///< of bias correction
  bool corrects_bias = true;
  bool decay_in_gradient = false;
  bool decay_after = false;  ///< of the updated parameter
  bool eps_in_root = false;
  bool eps_uncorrected = false;    ///< added before the root is corrected
  bool swaps_corrections = false;  ///< each moment has the other's
  bool decay_without_lr = false;
  bool old_moments = false;  ///< the step is by those from before
  double gradient_factor = 1.0;
  bool zero_moments = false;
  const Operation* moments = nullptr;  ///< where they come from; null: here
};

/// 1 - beta^t of both moments: of a whole tensor.
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

/// m' = b1 m + (1 - b1) g and v' = b2 v + (1 - b2) g^2, then p (1 - lr wd) - lr
/// / (1 - b1^t) m' / (sqrt(v' / (1 - b2^t)) + eps).
///
/// Bounds   scalars are rounded to FP32 once. m' is also computed as
///          m + (1 - b1) (g - m): terms of at most |m| + |g| and five
///          roundings. v' is a sum of positive terms: six. The root halves
///          that, and with its own rounding, the correction's two and that of
///          eps the denominator has at most 7; the step then 7 + 4 besides
///          what m' is off by; the decayed parameter has 2, and the difference
///          is rounded.
Updated Update(const AdamWRule& rule, const Corrections& correction, double p,
               double g, double m, double v) {
  Updated result;
  g *= rule.gradient_factor;
  if (rule.decay_in_gradient) g += rule.weight_decay * p;
  const double first = rule.beta1 * m + (1 - rule.beta1) * g;
  const double second = rule.beta2 * v + (1 - rule.beta2) * g * g;
  result.first = Around(first, std::fabs(m) + std::fabs(g), 5);
  // Tighter than the size of the terms: each is multiplied by its factor.
  result.first.bound =
      oracle::Gamma(5) * (std::fabs(rule.beta1 * m) +
                          (1 - rule.beta1) * (2 * std::fabs(g) + std::fabs(m)) +
                          (rule.beta1 < 0.5 ? std::fabs(g) : std::fabs(m))) +
      5 * oracle::kTiny;
  result.second = Around(second, second, 6);
  const double denominator =
      Denominator(rule, rule.old_moments ? v : second, correction.second);
  const double factor = rule.lr / correction.first;
  const double step = factor * (rule.old_moments ? m : first) / denominator;
  const double decay = rule.decay_in_gradient  ? 0
                       : rule.decay_without_lr ? rule.weight_decay
                                               : rule.lr * rule.weight_decay;
  const double kept = p * (1 - decay);
  result.parameter.exact =
      rule.decay_after ? (p - step) * (1 - decay) : kept - step;
  // Squares below 2^-126 lose bits: sqrt moves by at most sqrt(6 2^-149).
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

double Median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return 1.0;
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// What the gradient was multiplied by, if anything: from the first moments.
double GradientFactor(const Operation& operation, const AdamWRule& rule) {
  const Floats* after = operation.Find("exp_avg_after");
  if (after == nullptr) return 1.0;
  std::vector<double> factors;
  for (size_t i = 0; i < after->values.size(); ++i) {
    const auto g = static_cast<double>(operation.Find("gradient")->values[i]);
    const auto m =
        static_cast<double>(operation.Find("exp_avg_before")->values[i]);
    if (g == 0.0) continue;
    factors.push_back((static_cast<double>(after->values[i]) - rule.beta1 * m) /
                      ((1 - rule.beta1) * g));
  }
  return Median(std::move(factors));
}

/// What the learning rate was multiplied by, if anything: from the parameters.
double RateFactor(const Operation& operation, const AdamWRule& rule) {
  const Floats* after = operation.Find("parameter_after");
  if (after == nullptr) return 1.0;
  const Corrections corrections(rule);
  std::vector<double> factors;
  for (size_t i = 0; i < after->values.size(); ++i) {
    const auto at = [&](const char* name) {
      return static_cast<double>(operation.Find(name)->values[i]);
    };
    const double p = at("parameter_before");
    const double change = Update(rule, corrections, p, at("gradient"),
                                 at("exp_avg_before"), at("exp_avg_sq_before"))
                              .parameter.exact -
                          p;
    factors.push_back((static_cast<double>(after->values[i]) - p) / change);
  }
  return Median(std::move(factors));
}

/// A factor is only near what it was: small whole numbers and their inverses
/// are taken for it.
double NearWhole(double factor) {
  for (const double whole : {2.0, 3.0, 4.0, 8.0, 10.0, 16.0, 100.0, 1000.0}) {
    constexpr double kNear = 0.02;
    if (std::fabs(factor / whole - 1) < kNear) return whole;
    if (std::fabs(factor * whole - 1) < kNear) return 1 / whole;
  }
  return factor;
}

struct AdamWMistake {
  const char* name;
  const char* sentence;
  void (*alter)(AdamWRule& rule);
  bool is_right = false;
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

/// Mistakes whose size is found from the tensors themselves.
void AddFitted(const OperationCase& given, const AdamWRule& rule,
               std::vector<std::pair<Trial, AdamWRule>>& trials) {
  const double gradient = NearWhole(GradientFactor(given.operation, rule));
  AdamWRule altered = rule;
  altered.gradient_factor = gradient;
  trials.emplace_back(
      Trial{.name = "gradient_scaled",
            .sentence = "the gradient was " + std::to_string(gradient) +
                        " times what was recorded: clipped or averaged "
                        "otherwise",
            .compare = nullptr},
      altered);
  const double rate = NearWhole(RateFactor(given.operation, rule));
  altered = rule;
  altered.lr *= rate;
  trials.emplace_back(
      Trial{.name = "lr_off",
            .sentence = "the learning rate was " + std::to_string(rate) +
                        " times what was recorded",
            .compare = nullptr},
      altered);
}

std::vector<std::pair<Trial, AdamWRule>> Mistakes(const OperationCase& given,
                                                  const AdamWRule& rule) {
  std::vector<std::pair<Trial, AdamWRule>> trials;
  for (const AdamWMistake& mistake : kAdamWMistakes) {
    AdamWRule altered = rule;
    mistake.alter(altered);
    trials.emplace_back(Trial{.name = mistake.name,
                              .sentence = mistake.sentence,
                              .compare = nullptr},
                        altered);
  }
  if (given.previous != nullptr &&
      given.previous->Find("gradient")->extent ==
          given.operation.Find("gradient")->extent) {
    AdamWRule altered = rule;
    altered.moments = given.previous;
    trials.emplace_back(
        Trial{.name = "moments_stale",
              .sentence = "moments were those before the step before",
              .compare = nullptr},
        altered);
  }
  AddFitted(given, rule, trials);
  return trials;
}

/// Every element of `found` is that of `wanted`, bit for bit, after rounding to
/// the type of `found` if that is another one.
Comparison CompareState(const Floats& found, const std::string& name,
                        const Floats& wanted, const std::string& where) {
  const Grid grid =
      found.type == wanted.type ? Grid::kFp32 : GridOf(found, name, where);
  Comparison comparison(grid);
  const size_t cols = std::max<size_t>(found.Rows().cols(), 1);
  for (size_t i = 0; i < found.values.size(); ++i) {
    comparison.AddExact(i / cols, i % cols, found.values[i],
                        RoundTo(grid, static_cast<double>(wanted.values[i])));
  }
  return comparison;
}

/// What `before` of this step holds instead of `after` of the step before.
Explanation StateMistake(const OperationCase& given, const std::string& before,
                         const Floats& found) {
  const bool is_parameter = before == "parameter_before";
  const Floats* older = given.previous->Find(before);
  Floats zeros = found;
  std::ranges::fill(zeros.values, 0.0f);
  const auto is = [&](const Floats& values) {
    return CompareState(found, before, values, given.where).other() == 0;
  };
  if (!is_parameter && is(zeros)) {
    return {.name = "moments_lost_between_steps",
            .sentence = "moments began anew between the steps"};
  }
  if (older != nullptr && is(*older)) {
    return {.name = "update_lost_between_steps",
            .sentence = "the update of the step before was lost"};
  }
  return {.name = is_parameter ? "other_parameter" : "other_moments",
          .sentence = is_parameter
                          ? "the parameter is another one than after the step "
                            "before"
                          : "moments are others than after the step before"};
}

/// State before this step against state after the step before, bit for bit.
void CheckStateBetweenSteps(const OperationCase& given,
                            std::vector<Finding>& findings) {
  if (given.previous == nullptr) return;
  for (const char* stem : {"exp_avg", "exp_avg_sq", "parameter"}) {
    const std::string before = std::string(stem) + "_before";
    const Floats* after = given.previous->Find(std::string(stem) + "_after");
    const Floats& found = *given.operation.Find(before);
    if (after == nullptr || after->extent != found.extent) continue;
    // A coarser type after the step does not tell what a finer one held.
    if (after->type != found.type && after->type != "float32") continue;
    Finding finding =
        FindingOf(given, before, before,
                  CompareState(found, before, *after, given.where));
    if (!finding.is_right()) {
      finding.explanation = StateMistake(given, before, found);
    }
    findings.push_back(std::move(finding));
  }
}

/// A step that the optimizer was to skip leaves all as it was.
void CheckSkippedStep(const OperationCase& given,
                      std::vector<Finding>& findings) {
  for (const char* stem : {"exp_avg", "exp_avg_sq", "parameter"}) {
    const std::string after = std::string(stem) + "_after";
    const Floats* found = given.operation.Find(after);
    if (found == nullptr) continue;
    const Floats& before = *given.operation.Find(std::string(stem) + "_before");
    findings.push_back(FindingOf(
        given, after, after, CompareState(*found, after, before, given.where)));
  }
}

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
    if (finding.comparison.other() > 0) {
      std::vector<Trial> trials;
      for (auto& mistake : Mistakes(given, rule)) {
        mistake.first.compare = [&given, &part, altered = mistake.second] {
          return std::optional(Compare(given, part, altered));
        };
        trials.push_back(std::move(mistake.first));
      }
      Explain(trials, finding);
    }
    findings.push_back(std::move(finding));
  }
}

}  // namespace isoloss::operations
