// Compares the optimizer's step with that of torch.optim.AdamW.
#include "isoloss/operations/adamw.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "isoloss/base/portable_math.h"
#include "isoloss/operations/estimates.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;

double Denominator(const AdamWRule& rule, double second, double correction) {
  if (rule.eps_in_root) return std::sqrt(second / correction + rule.eps);
  if (rule.eps_uncorrected) {
    return (std::sqrt(second) + rule.eps) / std::sqrt(correction);
  }
  return std::sqrt(second / correction) + rule.eps;
}

/// Returns 1 - beta^t. In FP32, beta is rounded, which counts t times in its
/// power. Powers of GPUs are off by 4 ulp, and the difference is rounded.
double CorrectionOf(double beta, const AdamWRule& rule, double& slack) {
  if (beta <= 0) return 1.0;
  const double power = portable::Pow(beta, rule.step);
  slack =
      rule.corrects_in_fp32
          ? oracle::kUnitRoundoff * ((rule.step + 8) * power / (1 - power) + 1)
          : 0.0;
  return 1 - power;
}

}  // namespace

Corrections::Corrections(const AdamWRule& rule) {
  if (!rule.corrects_bias) return;
  double first_slack = 0;
  double second_slack = 0;
  first = CorrectionOf(rule.beta1, rule, first_slack);
  second = CorrectionOf(rule.beta2, rule, second_slack);
  if (rule.swaps_corrections) std::swap(first, second);
  // The root halves the second one. Torch then needs four roundings more.
  if (rule.corrects_in_fp32) {
    slack = first_slack + second_slack / 2 + oracle::Gamma(4);
  }
}

Element ElementOf(const Operation& operation, const AdamWRule& rule, size_t i) {
  const Operation& moments =
      rule.moments == nullptr ? operation : *rule.moments;
  const auto at = [i](const Floats* tensor) {
    return tensor == nullptr ? 0.0 : static_cast<double>(tensor->values[i]);
  };
  return {.p = at(operation.Find("parameter_before")),
          .g = at(operation.Find("gradient")),
          .m = rule.zero_moments ? 0.0 : at(moments.Find("exp_avg_before")),
          .v = rule.zero_moments ? 0.0 : at(moments.Find("exp_avg_sq_before")),
          .first = at(rule.stored_first),
          .second = at(rule.stored_second)};
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
///          difference is rounded. A decay in the gradient adds three roundings
///          to it.
Updated Update(const AdamWRule& rule, const Corrections& correction,
               const Element& element) {
  auto [p, g, m, v, stored_first, stored_second] = element;
  if (rule.skips) return {{.exact = m}, {.exact = v}, {.exact = p}};
  Updated result;
  g *= rule.gradient_factor;
  double off = 0.0;  // error of the gradient
  if (rule.decay_in_gradient) {
    off = oracle::Gamma(3) * (std::fabs(g) + std::fabs(rule.weight_decay * p));
    g += rule.weight_decay * p;
  }
  const double first = rule.beta1 * m + (1 - rule.beta1) * g;
  const double second = rule.beta2 * v + (1 - rule.beta2) * g * g;
  result.first = Around(first, std::fabs(m) + std::fabs(g), 5);
  // This is tighter than the size of the terms, since each has its own factor.
  result.first.bound =
      oracle::Gamma(5) * (std::fabs(rule.beta1 * m) +
                          (1 - rule.beta1) * (2 * std::fabs(g) + std::fabs(m)) +
                          (rule.beta1 < 0.5 ? std::fabs(g) : std::fabs(m))) +
      5 * oracle::kTiny + (1 - rule.beta1) * off;
  result.second = Around(second, second, 6);
  result.second.bound += (1 - rule.beta2) * off * (2 * std::fabs(g) + off);
  const double square = rule.old_moments                ? v
                        : rule.stored_second != nullptr ? stored_second
                                                        : second;
  const bool reads_stored = rule.stored_first != nullptr;
  const double denominator = Denominator(rule, square, correction.second);
  const double factor = rule.step_factor * rule.lr / correction.first;
  const double step = factor *
                      (rule.old_moments ? m
                       : reads_stored   ? stored_first
                                        : first) /
                      denominator;
  const double decay = rule.decay_in_gradient  ? 0
                       : rule.decay_without_lr ? rule.weight_decay
                                               : rule.lr * rule.weight_decay;
  const double kept = p * (1 - decay);
  result.parameter.exact =
      rule.decay_after ? (p - step) * (1 - decay) : kept - step;
  // Squares below 2^-126 lose bits, so sqrt moves by at most sqrt(6 2^-149).
  const double underflow =
      square < 0x1p-120 ? std::sqrt(6 * oracle::kTiny / correction.second)
                        : 0.0;
  const double room = denominator - underflow;
  // The root halves what an error of the gradient makes of the square.
  const double off_root =
      second > 0.0 ? (1 - rule.beta2) * off * std::fabs(g) / second : 0.0;
  const double of_step =
      room > 0.0 ? std::fabs(step) * (oracle::Gamma(11) + underflow / room +
                                      correction.slack + off_root) +
                       std::fabs(factor) *
                           (reads_stored ? 0.0 : result.first.bound) / room
                 : (denominator > 0.0 ? HUGE_VAL : 0.0);
  result.parameter.bound = of_step +
                           oracle::Gamma(3) * (std::fabs(p) + std::fabs(step)) +
                           3 * oracle::kTiny;
  result.parameter.noise = oracle::RootOfSquares(
      std::sqrt(1.0 / 12.0) * oracle::Ulp(result.parameter.exact),
      std::sqrt(11.0 / 12.0) * oracle::Ulp(step));
  return result;
}

Comparison Compare(const OperationCase& given, const PartText& part,
                   const AdamWRule& rule) {
  const Operation& operation = given.operation;
  const Floats& after = *operation.Find(part.tensor);
  Comparison comparison(GridOf(after, part.tensor, given.where));
  const size_t cols = std::max<size_t>(after.Rows().cols(), 1);
  const Corrections corrections(rule);
  for (size_t i = 0; i < after.values.size(); ++i) {
    const Updated updated =
        Update(rule, corrections, ElementOf(operation, rule, i));
    comparison.Add(i / cols, i % cols, after.values[i], updated.*part.estimate);
  }
  return comparison;
}

AdamWRule AdamWRuleOf(const Operation& operation) {
  return {.lr = operation.Number("lr", 0),
          .beta1 = operation.Number("beta1", 0),
          .beta2 = operation.Number("beta2", 0),
          .eps = operation.Number("eps", 0),
          .weight_decay = operation.Number("weight_decay", 0),
          .step = operation.Number("step", 1),
          .corrects_in_fp32 = operation.Text("corrections") == "float32",
          .decay_in_gradient = operation.Text("decay") == "l2"};
}

namespace {

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
    {"decay_decoupled",
     "weight decay was not added to the gradient, but shrank the parameter, as "
     "in AdamW",
     [](AdamWRule& rule) { rule.decay_in_gradient = false; }},
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

/// Compares with the step of `rule`, in the better one of its ways.
Comparison CompareWays(const OperationCase& given, const PartText& part,
                       const AdamWRule& rule) {
  Comparison best = Compare(given, part, rule);
  if (part.part != Part::kParameter) return best;
  const std::vector<AdamWRule> ways = WaysOf(given, rule);
  for (size_t i = 1; i < ways.size() && best.other() > 0; ++i) {
    Comparison other = Compare(given, part, ways[i]);
    if (other.other() < best.other()) best = std::move(other);
  }
  return best;
}

void CheckPart(const OperationCase& given, const PartText& part,
               const AdamWRule& rule, std::vector<Finding>& findings) {
  Finding finding = FindingOf(given, part.tensor, part.tensor,
                              CompareWays(given, part, rule));
  if (!finding.is_right()) {
    std::vector<Trial> trials = TrialsOfRoundedAdamW(given, part.tensor);
    ForEachAdamWMistake(
        given, rule,
        [&](const char* mistake, const char* sentence,
            const AdamWRule& altered) {
          trials.push_back({mistake, sentence, [&given, &part, altered] {
                              return std::optional(
                                  CompareWays(given, part, altered));
                            }});
        });
    if (part.part == Part::kParameter) {
      trials.push_back(TrialOfRandomParameter(given, rule));
    }
    Explain(trials, finding, [&] { return FitsOfAdamW(given, part, rule); });
    finding.places =
        PlacesOf(finding.comparison,
                 given.operation.Find(part.tensor)->Rows().rows(), "rows");
  }
  findings.push_back(std::move(finding));
}

}  // namespace

std::vector<AdamWRule> WaysOf(const OperationCase& given,
                              const AdamWRule& rule) {
  std::vector<AdamWRule> ways = {rule};
  const Floats* first = given.operation.Find("exp_avg_after");
  const Floats* second = given.operation.Find("exp_avg_sq_after");
  if (first != nullptr && second != nullptr && first->type != "float32") {
    ways.push_back(rule);
    ways.back().stored_first = first;
    ways.back().stored_second = second;
  }
  return ways;
}

void ForEachAdamWMistake(const OperationCase& given, const AdamWRule& rule,
                         const UseAdamWMistake& use) {
  for (const AdamWMistake& mistake : kAdamWMistakes) {
    AdamWRule altered = rule;
    mistake.alter(altered);
    use(mistake.name, mistake.sentence, altered);
  }
  if (given.previous == nullptr ||
      given.previous->Find("gradient")->extent !=
          given.operation.Find("gradient")->extent) {
    return;
  }
  AdamWRule altered = rule;
  altered.moments = given.previous;
  use("moments_stale", "moments were those before the step before", altered);
  altered = rule;
  altered.lr = given.previous->Number("lr", rule.lr);
  if (altered.lr == rule.lr) return;
  use("lr_stale", "the learning rate was that of the step before", altered);
}

void CheckAdamW(const OperationCase& given, std::vector<Finding>& findings) {
  CheckStateBetweenSteps(given, findings);
  if (given.operation.texts.contains("expected")) {
    return CheckSkippedStep(given, findings);
  }
  const AdamWRule rule = AdamWRuleOf(given.operation);
  for (const PartText& part : kParts) {
    const std::string name = part.tensor;
    if (given.operation.FindCodes(name + "_codes") != nullptr) {
      CheckStoredMoment(given, part, rule, findings);
      continue;
    }
    if (given.operation.Find(name) == nullptr) continue;
    if (IsRandomParameter(given.operation, part)) {
      CheckRandomParameter(given, rule, findings);
    } else {
      CheckPart(given, part, rule, findings);
    }
  }
  CheckCopy(given, findings);
}

}  // namespace isoloss::operations
