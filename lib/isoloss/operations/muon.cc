// Compares the optimizer's step with that of Muon.
#include "isoloss/operations/muon.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "isoloss/operations/fit.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Grid;
using Scale = MuonRule::Scale;
using Sums = NewtonSchulzWay::Sums;
using Norm = NewtonSchulzWay::Norm;

/// So many other orders of sums tell how much an order changes.
constexpr size_t kDraws = 8;

// ---- what attributes allow --------------------------------------------------

/// Returns the ways of torch.optim.Muon, of Jordan's text as it stands and as
/// compilers take it, and of Megatron-Core; or those of FP32.
std::vector<NewtonSchulzWay> WaysOf(const std::string& dtype) {
  std::vector<NewtonSchulzWay> ways;
  if (dtype != "float32") {
    const Grid grid = dtype == "float16" ? Grid::kFp16 : Grid::kBf16;
    ways = {{grid, Sums::kFused, Norm::kRounded},
            {grid, Sums::kEach, Norm::kRounded},
            {grid, Sums::kAddends, Norm::kOfRounded, true},
            {grid, Sums::kFused, Norm::kOfFp32},
            {grid, Sums::kAddends, Norm::kOfFp32, true},
            {grid, Sums::kProducts, Norm::kOfRounded, true},
            {grid, Sums::kProducts, Norm::kOfFp32, true},
            {grid, Sums::kFused, Norm::kOfRounded},
            {grid, Sums::kEach, Norm::kOfRounded},
            {grid, Sums::kEach, Norm::kOfFp32},
            {grid, Sums::kAddends, Norm::kRounded},
            {grid, Sums::kProducts, Norm::kRounded}};
  }
  if (dtype.empty() || dtype == "float32") {
    ways.push_back({Grid::kFp32, Sums::kFused, Norm::kOfFp32});
  }
  return ways;
}

std::vector<NewtonSchulzStep> StepsOf(const Operation& operation) {
  const std::vector<float>& rows = operation.Find("coefficients")->values;
  const auto count = static_cast<size_t>(operation.Number("ns_steps", 0));
  std::vector<NewtonSchulzStep> steps(count);
  for (size_t i = 0; i < count; ++i) {
    const float* row = rows.data() + (rows.size() == 3 ? 0 : 3 * i);
    steps[i] = {static_cast<double>(row[0]), static_cast<double>(row[1]),
                static_cast<double>(row[2])};
  }
  return steps;
}

/// Puts each of the values into each of the rules.
template <typename Value, typename Set>
void Spread(std::vector<MuonRule>& rules, const std::vector<Value>& values,
            const Set& set) {
  std::vector<MuonRule> all;
  for (const MuonRule& rule : rules) {
    for (const Value& value : values) set(all.emplace_back(rule), value);
  }
  rules = std::move(all);
}

constexpr std::pair<const char*, Scale> kScales[] = {
    {"original", Scale::kOriginal},
    {"match_rms_adamw", Scale::kMatchRms},
    {"unclamped", Scale::kUnclamped},
    {"spectral", Scale::kSpectral},
    {"none", Scale::kNone}};

/// Compares one parameter, and names its mistakes.
class MuonCheck {
 public:
  explicit MuonCheck(const OperationCase& given)
      : given_(given), steps_(given), rules_(MuonRulesOf(given.operation)) {}

  Finding Find() {
    MuonRule rule = Nearest(rules_);
    Comparison comparison = Compare(rule);
    // Scales differ in nothing that Nearest sees.
    for (const MuonRule& other : rules_) {
      if (comparison.other() == 0) break;
      if (!other.HasDirectionOf(rule)) continue;
      Comparison found = Compare(other);
      if (found.other() >= comparison.other()) continue;
      comparison = std::move(found);
      rule = other;
    }
    Finding finding = FindingOf(given_, "parameter_after", "parameter_after",
                                std::move(comparison));
    if (finding.is_right()) return finding;
    if (steps_.Cost(rule) > kMostSought) {
      finding.untried =
          "The iterations are so large that no mistake was sought.";
    } else {
      Explain(Trials(rule), finding, [&] { return Further(rule); });
    }
    finding.places = PlacesOf(
        finding.comparison,
        given_.operation.Find("parameter_after")->Rows().rows(), "rows");
    return finding;
  }

 private:
  static constexpr double kMostSought = 0x1p36;

  Comparison Compare(const MuonRule& rule) {
    return steps_.Compare(rule, kDraws);
  }
  /// Returns the rule whose direction explains most of the update.
  MuonRule Nearest(const std::vector<MuonRule>& rules) {
    const MuonRule* nearest = &rules[0];
    double least = HUGE_VAL;
    for (const MuonRule& rule : rules) {
      if (&rule != &rules[0] && rule.HasDirectionOf(*nearest)) continue;
      const double unexplained = steps_.Unexplained(rule);
      if (unexplained < least) {
        least = unexplained;
        nearest = &rule;
      }
    }
    return *nearest;
  }
  /// Returns the mistake in the way that explains most of the update.
  template <typename Alter>
  MuonRule NearestWith(const Alter& alter, const MuonRule& rule, bool& can) {
    std::vector<MuonRule> altered;
    for (const MuonRule& way : rules_) {
      MuonRule each = way;
      each.scale = rule.scale;
      if (alter(each)) altered.push_back(std::move(each));
    }
    can = !altered.empty();
    return can ? Nearest(altered) : rule;
  }

  std::vector<Trial> Trials(const MuonRule& rule) {
    struct Candidate {
      const MuonMistake* mistake;
      MuonRule rule;
      double unexplained;
    };
    std::vector<Candidate> candidates;
    double least = steps_.Unexplained(rule);
    std::vector<MuonRule> scales = {rule};
    for (const MuonMistake& mistake : MuonMistakes()) {
      MuonRule altered = rule;
      bool can = mistake.alter(altered);
      if (!can) continue;
      if (altered.HasDirectionOf(rule) && ChangesNothing(altered, scales)) {
        continue;
      }
      if (!altered.HasDirectionOf(rule)) {
        altered = NearestWith(mistake.alter, rule, can);
      }
      const double unexplained = steps_.Unexplained(altered);
      least = std::min(least, unexplained);
      candidates.push_back({&mistake, altered, unexplained});
    }
    std::vector<Trial> trials;
    AddSkipped(trials);
    for (const Candidate& candidate : candidates) {
      // Others cannot explain the direction, whatever the size.
      constexpr double kTimes = 4.0;
      constexpr double kNoise = 1e-9;
      if (candidate.unexplained > kTimes * least + kNoise) continue;
      Add(trials, candidate.mistake->name, candidate.mistake->sentence,
          candidate.rule);
    }
    AddTransposed(trials, rule);
    AddGradient(trials, rule);
    if (given_.previous != nullptr) {
      MuonRule altered = rule;
      altered.lr = given_.previous->Number("lr", rule.lr);
      if (altered.lr != rule.lr) {
        Add(trials, "lr_stale", "the learning rate was that of the step before",
            altered);
      }
    }
    return trials;
  }
  /// Returns whether one of the rules has the same scale, decay and sign. Else
  /// adds this one to them.
  bool ChangesNothing(const MuonRule& altered,
                      std::vector<MuonRule>& rules) const {
    const MuonShape shape(given_.operation.Find("parameter_before")->extent);
    const auto step_of = [&](const MuonRule& rule) {
      return rule.factor * ScaleOf(rule, shape.rows, shape.cols);
    };
    for (const MuonRule& rule : rules) {
      if (step_of(rule) == step_of(altered) &&
          steps_.KeptShare(rule) == steps_.KeptShare(altered)) {
        return true;
      }
    }
    rules.push_back(altered);
    return false;
  }
  void Add(std::vector<Trial>& trials, const char* name, const char* sentence,
           const MuonRule& rule) {
    trials.push_back({name, sentence,
                      [this, rule] { return std::optional(Compare(rule)); }});
  }
  /// Adds a gradient of another size, if the momentum tells one.
  void AddGradient(std::vector<Trial>& trials, const MuonRule& rule) {
    const double ratio = steps_.GradientRatio(rule);
    constexpr double kNear = 1e-5;
    if (!std::isfinite(ratio) || std::fabs(ratio - 1.0) < kNear) return;
    bool can = true;
    Add(trials, "gradient_scaled",
        "the gradient had another size than was recorded",
        NearestWith(
            [ratio](MuonRule& each) {
              each.gradient_factor = ratio;
              return true;
            },
            rule, can));
  }
  void AddSkipped(std::vector<Trial>& trials) const {
    trials.push_back({"not_updated", "the parameter was not updated",
                      [this] { return std::optional(CompareKept()); }});
  }
  Comparison CompareKept() const {
    const Floats& after = *given_.operation.Find("parameter_after");
    const Floats& before = *given_.operation.Find("parameter_before");
    Comparison comparison(GridOf(after, "parameter_after", given_.where));
    const size_t cols = std::max<size_t>(after.Rows().cols(), 1);
    for (size_t i = 0; i < after.values.size(); ++i) {
      comparison.AddExact(i / cols, i % cols, after.values[i],
                          before.values[i]);
    }
    return comparison;
  }
  void AddTransposed(std::vector<Trial>& trials, const MuonRule& rule) {
    const MuonShape shape(given_.operation.Find("parameter_before")->extent);
    if (shape.rows != shape.cols) return;
    MuonRule altered = rule;
    altered.transposes = true;
    Add(trials, "ns_transposed", "the update was transposed", altered);
  }

  /// Returns fits of numbers, and the way of roundings that nobody knows.
  std::vector<Trial> Further(const MuonRule& rule) {
    const MuonSteps::Multiples found = steps_.MultiplesOf(rule, kDraws);
    const auto around = [](double center, double tolerance) {
      // A comparison confirms the number, so a narrow range loses nothing.
      const double width = std::min(tolerance, 0.1 * std::fabs(center) + 1e-6);
      FactorRange range;
      range.Narrow(center - width, center + width);
      return range;
    };
    Fit rate;
    rate.name = "lr_off";
    rate.sentence = [](double factor) {
      return fmt::format("the learning rate was {:.9g} times what was recorded",
                         factor);
    };
    rate.compare = [this, rule](double factor) {
      MuonRule altered = rule;
      altered.lr *= factor;
      return Compare(altered);
    };
    Fit scale;
    scale.name = "step_scaled";
    scale.sentence = [](double factor) {
      return fmt::format(
          "the step was {:.9g} times what rate, scale and direction give, the "
          "decay was right",
          factor);
    };
    scale.compare = [this, rule](double factor) {
      MuonRule altered = rule;
      altered.factor *= factor;
      return Compare(altered);
    };
    Fit decay;
    decay.name = "decay_off";
    decay.right = rule.weight_decay;
    decay.sentence = [declared = rule.weight_decay](double number) {
      return fmt::format("the parameter decayed by {:.9g}, not by {:.9g}",
                         number, declared);
    };
    decay.compare = [this, rule](double number) {
      MuonRule altered = rule;
      altered.weight_decay = number;
      return Compare(altered);
    };
    rate.range = scale.range =
        around(1 - found.step.value, found.step.tolerance);
    const double rate_of_decay = rule.lr == 0.0 ? 1.0 : rule.lr;
    decay.range =
        around(rule.weight_decay - found.parameter.value / rate_of_decay,
               found.parameter.tolerance / std::fabs(rate_of_decay));
    std::vector<Fit> fits = {scale, rate};
    if (!rule.decay_in_gradient) fits.push_back(decay);
    if (rule.weight_decay == 0.0) fits.erase(fits.begin());
    std::vector<Trial> trials = Confirmed(fits);
    if (trials.empty()) AddUnknown(trials, rule);
    return trials;
  }
  /// Adds a way whose roundings nobody knows, if they change little.
  void AddUnknown(std::vector<Trial>& trials, const MuonRule& rule) {
    MuonRule unknown = rule;
    unknown.iteration.way.is_unknown = true;
    trials.push_back(
        {.name = "roundings_unknown",
         .sentence = "the iteration was rounded in another way",
         .compare = [this, unknown]() -> std::optional<Comparison> {
           constexpr double kMost = 0.1;
           if (steps_.NoiseShare(unknown, kDraws) > kMost * kMost) {
             return std::nullopt;
           }
           return Compare(unknown);
         },
         .is_right = true});
  }

  const OperationCase& given_;
  MuonSteps steps_;
  std::vector<MuonRule> rules_;
};

}  // namespace

std::vector<MuonRule> MuonRulesOf(const Operation& operation) {
  MuonRule rule = {.lr = operation.Number("lr", 0),
                   .momentum = operation.Number("momentum", 0),
                   .weight_decay = operation.Number("weight_decay", 0),
                   .factor = operation.Number("scale", 1),
                   .decay_in_gradient = operation.Text("decay") == "l2"};
  rule.iteration.steps = StepsOf(operation);
  rule.iteration.eps = operation.Number("eps", 1e-7);
  std::vector<MuonRule> rules = {rule};
  Spread(rules, WaysOf(operation.Text("ns_dtype")),
         [](MuonRule& each, const NewtonSchulzWay& way) {
           each.iteration.way = way;
         });
  const std::string momentum = operation.Text("momentum_rule");
  std::vector<bool> lerps = {true, false};
  if (!momentum.empty()) lerps = {momentum == "lerp"};
  Spread(rules, lerps,
         [](MuonRule& each, bool lerp) { each.interpolates = lerp; });
  std::vector<bool> nesterov = {true, false};
  if (operation.numbers.contains("nesterov")) {
    nesterov = {operation.Number("nesterov", 1) != 0.0};
  }
  Spread(rules, nesterov, [](MuonRule& each, bool is) { each.nesterov = is; });
  const std::string declared = operation.Text("scale_rule");
  std::vector<Scale> scales;
  for (const auto& [name, scale] : kScales) {
    if (declared.empty() || declared == name) scales.push_back(scale);
  }
  Spread(rules, scales,
         [](MuonRule& each, Scale scale) { each.scale = scale; });
  return rules;
}

void CheckMuon(const OperationCase& given, std::vector<Finding>& findings) {
  CheckStateBetweenSteps(given, findings);
  if (given.operation.texts.contains("expected")) {
    return CheckSkippedStep(given, findings);
  }
  CheckMomentum(given, findings);
  const Floats* after = given.operation.Find("parameter_after");
  if (after == nullptr) return;
  if (after->type != "float32" && IsRoundedAtRandom(given.operation)) {
    findings.push_back(FindingOf(given, "parameter_after", "parameter_after",
                                 Comparison(Grid::kBf16)));
    findings.back().open =
        "parameter_after was not judged, since it is rounded at random and no "
        "FP32 master is there";
    return;
  }
  findings.push_back(MuonCheck(given).Find());
  CheckCopy(given, findings);
}

}  // namespace isoloss::operations
