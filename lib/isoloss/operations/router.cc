// Compares a router's choice of experts and its weights with the oracle's.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "isoloss/operations/check.h"
#include "isoloss/operations/estimates.h"
#include "isoloss/operations/expert_groups.h"
#include "isoloss/operations/fit.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

double At(const Floats& tensor, size_t row, size_t col) {
  return static_cast<double>(tensor.Rows()(row, col));
}

class Choice {
 public:
  explicit Choice(const OperationCase& given)
      : where_(given.where),
        scores_(*given.operation.Find("scores")),
        bias_(given.operation.Find("bias")),
        ids_(*given.operation.FindIntegers("expert_ids")),
        weights_(given.operation.Find("weights")),
        top_k_(given.operation.Number("top_k",
                                      static_cast<double>(ids_.extent[1]))),
        normalize_(given.operation.Number("normalize", 0) != 0),
        scale_(given.operation.Number("scale", 1.0)),
        groups_(given) {}

  bool has_weights() const { return weights_ != nullptr; }
  bool has_bias() const { return bias_ != nullptr; }
  bool normalizes() const { return normalize_; }
  bool scales() const { return scale_ != 1.0; }
  bool limits_groups() const { return groups_.limits(); }
  bool has_top_k() const {
    return top_k_ == static_cast<double>(ids_.extent[1]);
  }
  double top_k() const { return top_k_; }
  size_t slots() const { return ids_.extent[1]; }

  /// Compares the choice of experts. The i-th largest sum of score and bias
  /// among the chosen experts must be the i-th largest of all. One addition in
  /// FP32 is rounded on either side, so sums that differ by 2 roundings or less
  /// may change places. A slot is wrong if it is not among the top_k, if it is
  /// missing, or if the token chose an expert twice. With groups, only experts
  /// of open groups count.
  Comparison CompareChoice(bool bias, bool in_groups = true) const {
    Comparison comparison(Grid::kFp32);
    const size_t experts = scores_.extent[1];
    const size_t slots = ids_.extent[1];
    std::vector<double> chosen(slots);
    std::vector<int64_t> ids(slots);
    for (size_t t = 0; t < ids_.extent[0]; ++t) {
      for (size_t i = 0; i < slots; ++i) {
        ids[i] = ids_.values[t * slots + i];
        chosen[i] = Ranked(SumOf(t, static_cast<size_t>(ids[i]), bias));
      }
      std::vector<double> all = OpenSums(t, bias, in_groups, ids);
      std::ranges::sort(all, std::greater());
      std::ranges::sort(chosen, std::greater());
      std::ranges::sort(ids);
      const bool twice = std::ranges::adjacent_find(ids) != ids.end();
      for (size_t i = slots; i < std::min(Configured(), experts); ++i) {
        comparison.AddOther(t, i, std::nanf(""), all[i]);
      }
      for (size_t i = 0; i < slots; ++i) {
        const double wanted = i < experts ? all[i] : HUGE_VAL;
        const auto found = static_cast<float>(chosen[i]);
        if (twice || static_cast<double>(i) >= top_k_) {
          comparison.AddOther(t, i, found, wanted);
        } else if (chosen[i] == wanted) {
          comparison.AddExact(t, i, found, found);
        } else {
          comparison.Add(t, i, found, Around(wanted, Largest(t, bias), 2));
        }
      }
    }
    return comparison;
  }

  struct WeightRule {
    bool bias = false;  ///< weights are of score + bias
    bool normalize;
    bool scale;
    bool divide = false;  ///< by the scale
    /// The sum is that of the chosen experts and of all remaining ones.
    bool all_experts = false;
    bool reversed = false;  ///< slots of each token
    double factor = 1.0;
    /// The factor applies to these tokens; null: all.
    const std::vector<bool>* factor_tokens = nullptr;
    bool bf16 = false;  ///< each step is rounded to BF16
  };
  WeightRule AsGiven() const {
    return {.normalize = normalize_, .scale = true};
  }

  Comparison CompareWeights(const WeightRule& rule) const {
    Comparison comparison(GridOf(*weights_, "weights", where_));
    ForEachWeight(rule, [&](size_t t, size_t i, const Estimate& weight) {
      comparison.Add(t, i, weights_->values[t * slots() + i], weight);
    });
    return comparison;
  }

  /// Returns a fit of a factor of the wrong tokens' weights.
  Fit WeightFit(const std::vector<bool>& wrong) const {
    Fit fit;
    fit.name = "weights_scaled";
    const std::vector<size_t> places = MarkedRows(wrong);
    const std::string whose =
        places.size() == ids_.extent[0]
            ? ""
            : fmt::format("of token{} {} ", places.size() == 1 ? "" : "s",
                          FirstFew(places));
    fit.sentence = [this, whose](double factor) {
      return fmt::format(
          "weights {}were {:.9g} times what scores, `normalize` and `scale` "
          "give{}",
          whose, factor,
          scales() ? fmt::format(", as by a scale of {:.6g}", factor * scale_)
                   : "");
    };
    fit.not_zero = true;
    fit.compare = [this, wrong](double factor) {
      WeightRule rule = AsGiven();
      rule.factor = factor;
      rule.factor_tokens = &wrong;
      return CompareWeights(rule);
    };
    const Grid grid = GridOf(*weights_, "weights", where_);
    ForEachWeight(AsGiven(), [&](size_t t, size_t i, const Estimate& weight) {
      if (!Marks(wrong, t)) return;
      fit.range.Add(
          weight.exact, 0.0, weights_->values[t * slots() + i], grid,
          weight.bound + 2 * oracle::kUnitRoundoff * std::fabs(weight.exact));
    });
    return fit;
  }

  std::vector<Trial> WeightRows(const std::vector<bool>& wrong) const {
    return TrialsOfRows(
        {.found = weights_->Rows(),
         .grid = GridOf(*weights_, "weights", where_),
         .for_each = [this](const auto& use) { ForEachWeight(AsGiven(), use); },
         .noun = "token",
         .content = "weights"},
        wrong);
  }
  std::string TokenPlaces(const Comparison& comparison) const {
    return PlacesOf(comparison, ids_.extent[0], "tokens");
  }

  /// Returns "Token 3 has experts 1, 5, but should have 1, 2."
  std::string ExpertsText(size_t token) const {
    std::vector<int64_t> chosen(slots());
    std::copy_n(ids_.values.begin() + static_cast<ptrdiff_t>(token * slots()),
                slots(), chosen.begin());
    const std::vector<double> all = OpenSums(token, true, true, chosen);
    std::vector<int64_t> wanted(all.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    std::ranges::stable_sort(wanted, [&](int64_t a, int64_t b) {
      return all[static_cast<size_t>(a)] > all[static_cast<size_t>(b)];
    });
    wanted.resize(Configured());
    return fmt::format("Token {} has experts {}, but should have {}.", token,
                       fmt::join(chosen, ", "), fmt::join(wanted, ", "));
  }

 private:
  /// Computes score over the sum of the token's scores (k additions, one of
  /// 1e-20, one division), times scale: k + 3 roundings. A factor takes two
  /// more.
  template <typename Visit>
  void ForEachWeight(const WeightRule& rule, const Visit& visit) const {
    for (size_t t = 0; t < ids_.extent[0]; ++t) {
      double sum = 0.0;
      for (size_t i = 0; i < slots(); ++i) sum += WeightOf(t, i, rule);
      if (rule.all_experts) {
        sum = 0.0;
        for (size_t e = 0; e < scores_.extent[1]; ++e) {
          sum += SumOf(t, e, rule.bias);
        }
      }
      for (size_t i = 0; i < slots(); ++i) {
        double weight = WeightOf(t, rule.reversed ? slots() - 1 - i : i, rule);
        size_t roundings = rule.bias ? 1 : 0;
        if (rule.normalize && rule.bf16) {
          weight = InBf16(weight / InBf16(sum));
        } else if (rule.normalize) {
          weight /= sum + 1e-20;
          roundings += scores_.extent[1] + 2;
        }
        if (rule.scale) {
          weight = rule.divide ? weight / scale_ : weight * scale_;
          roundings += scale_ == 1.0 ? 0 : 2;
        }
        if (rule.factor != 1.0 &&
            (rule.factor_tokens == nullptr || Marks(*rule.factor_tokens, t))) {
          weight *= rule.factor;
          roundings += 2;
        }
        visit(t, i,
              roundings == 0 ? Estimate{.exact = weight}
                             : Around(weight, std::fabs(weight), roundings));
      }
    }
  }
  /// Returns sums of score and bias; minus infinity if a group is not open to a
  /// token that chose `ids`.
  std::vector<double> OpenSums(size_t token, bool bias, bool in_groups,
                               std::span<const int64_t> ids) const {
    std::vector<double> all(scores_.extent[1]);
    for (size_t e = 0; e < all.size(); ++e) {
      all[e] = Ranked(SumOf(token, e, bias));
    }
    if (!in_groups) return all;
    const std::vector<bool> open = groups_.Open(all, ids);
    for (size_t e = 0; e < all.size(); ++e) {
      if (!open[e]) all[e] = -HUGE_VAL;
    }
    return all;
  }
  /// NaN comes last, since NaN has no order.
  static double Ranked(double sum) { return std::isnan(sum) ? -HUGE_VAL : sum; }
  double SumOf(size_t token, size_t expert, bool bias) const {
    const double score = At(scores_, token, expert);
    return bias && bias_ != nullptr
               ? score + static_cast<double>(bias_->values[expert])
               : score;
  }
  static double InBf16(double value) {
    return static_cast<double>(RoundTo(Grid::kBf16, value));
  }
  size_t Configured() const {
    return static_cast<size_t>(
        std::clamp(top_k_, 0.0, static_cast<double>(scores_.extent[1])));
  }
  double Largest(size_t token, bool bias) const {
    double most = 0.0;
    for (size_t e = 0; e < scores_.extent[1]; ++e) {
      most = std::max(most, std::fabs(SumOf(token, e, bias)));
    }
    return most;
  }
  double WeightOf(size_t token, size_t slot, const WeightRule& rule) const {
    const int64_t expert = ids_.values[token * ids_.extent[1] + slot];
    return SumOf(token, static_cast<size_t>(expert), rule.bias);
  }

  const std::string& where_;
  const Floats& scores_;
  const Floats* bias_;
  const Integers& ids_;
  const Floats* weights_;
  const double top_k_;
  const bool normalize_;
  const double scale_;
  const ExpertGroups groups_;
};

/// Calls use(choice) for the operation with another input.
template <typename Use>
Comparison WithOther(const OperationCase& given, const char* input,
                     const Floats& other, const Use& use) {
  Operation operation = given.operation;
  operation.floats[input] = other;
  const OperationCase altered = {.operation = operation,
                                 .previous = nullptr,
                                 .where = given.where,
                                 .file = given.file,
                                 .index = given.index};
  return use(Choice(altered));
}

/// Returns the input of the step before, if it has the same shape.
const Floats* OlderOf(const OperationCase& given, const char* input) {
  const Floats* now = given.operation.Find(input);
  const Floats* older =
      given.previous == nullptr ? nullptr : given.previous->Find(input);
  return now != nullptr && older != nullptr && older->extent == now->extent
             ? older
             : nullptr;
}

Comparison ChoiceOf(const Choice& choice) { return choice.CompareChoice(true); }

void AddOtherBiases(const OperationCase& given, std::vector<Trial>& trials) {
  const Floats& bias = *given.operation.Find("bias");
  trials.push_back(
      {"bias_negated", "experts were chosen by the bias with the other sign",
       [&given, &bias] {
         Floats negated = bias;
         for (float& value : negated.values) value = -value;
         return std::optional(WithOther(given, "bias", negated, ChoiceOf));
       }});
  const Floats* older = OlderOf(given, "bias");
  if (older == nullptr) return;
  trials.push_back(
      {"bias_stale", "experts were chosen by the bias of the step before",
       [&given, older] {
         return std::optional(WithOther(given, "bias", *older, ChoiceOf));
       }});
}

Finding ChoiceFinding(const OperationCase& given, const Choice& choice) {
  Finding finding = FindingOf(given, "choice", "expert_ids",
                              choice.CompareChoice(/*bias=*/true));
  std::vector<Trial> trials;
  if (choice.has_bias()) {
    trials.push_back(
        {"bias_ignored", "experts were chosen by their scores without the bias",
         [&] { return std::optional(choice.CompareChoice(false)); }});
    AddOtherBiases(given, trials);
  }
  if (const Floats* older = OlderOf(given, "scores")) {
    trials.push_back(
        {"scores_stale", "experts were chosen by the scores of the step before",
         [&given, older] {
           return std::optional(WithOther(given, "scores", *older, ChoiceOf));
         }});
  }
  if (choice.limits_groups()) {
    trials.push_back(
        {"groups_ignored", "experts were chosen from all groups",
         [&] { return std::optional(choice.CompareChoice(true, false)); }});
  }
  Explain(trials, finding);
  finding.places = choice.TokenPlaces(finding.comparison);
  if (!choice.has_top_k() && finding.comparison.other() > 0) {
    finding.explanation = {
        .name = "k_off",
        .sentence = "each token has " + std::to_string(choice.slots()) +
                    " experts, but top_k is " +
                    std::to_string(static_cast<int64_t>(choice.top_k()))};
  }
  if (!finding.is_right()) {
    finding.remark = choice.ExpertsText(
        static_cast<size_t>(finding.comparison.Row().worst_row));
  }
  return finding;
}

/// Weights may follow this rule instead of the one that is given.
struct OtherWeightRule {
  const char* name;
  const char* sentence;
  Choice::WeightRule rule;
};

std::vector<OtherWeightRule> OtherWeightRules(const Choice& choice) {
  std::vector<OtherWeightRule> others;
  const auto add = [&](const char* name, const char* sentence,
                       const auto& change) {
    Choice::WeightRule rule = choice.AsGiven();
    change(rule);
    others.push_back({name, sentence, rule});
  };
  if (choice.has_bias()) {
    add("bias_in_weights", "weights are of scores with the bias",
        [](auto& rule) { rule.bias = true; });
  }
  add(choice.normalizes() ? "not_normalized" : "normalized",
      choice.normalizes() ? "weights were not divided by their sum"
                          : "weights were divided by their sum",
      [](auto& rule) { rule.normalize = !rule.normalize; });
  if (choice.scales()) {
    add("scale_missing", "weights were not multiplied by the scale",
        [](auto& rule) { rule.scale = false; });
    add("scale_divides", "weights were divided by the scale",
        [](auto& rule) { rule.divide = true; });
    add("neither",
        "weights were neither scaled nor treated by their sum as "
        "`normalize` says",
        [](auto& rule) {
          rule.normalize = !rule.normalize;
          rule.scale = false;
        });
  }
  if (choice.normalizes()) {
    add("normalized_over_all",
        "weights were divided by the sum over all experts",
        [](auto& rule) { rule.all_experts = true; });
    add("normalized_in_bf16",
        "sums of scores and quotients by them were rounded to BF16 on the way",
        [](auto& rule) { rule.bf16 = true; });
  }
  if (choice.slots() > 1) {
    add("slots_reversed",
        "weights of each token stood in reverse order of its experts",
        [](auto& rule) { rule.reversed = true; });
  }
  return others;
}

/// Adds trials with the scores and the weights of the step before.
void AddStaleWeights(const OperationCase& given,
                     const Choice::WeightRule& as_given,
                     std::vector<Trial>& trials) {
  if (const Floats* older = OlderOf(given, "scores")) {
    trials.push_back({"scores_stale",
                      "weights are of the scores of the step before",
                      [&given, older, as_given] {
                        return std::optional(WithOther(
                            given, "scores", *older, [&](const Choice& stale) {
                              return stale.CompareWeights(as_given);
                            }));
                      }});
  }
  const Floats* last = OlderOf(given, "weights");
  if (last != nullptr &&
      last->values == given.operation.Find("weights")->values) {
    trials.push_back(
        {"weights_stale", "weights are those of the step before", [&given] {
           Comparison equal(Grid::kFp32);
           const std::vector<float>& values =
               given.operation.Find("weights")->values;
           for (size_t i = 0; i < values.size(); ++i) {
             equal.AddExact(0, i, values[i], values[i]);
           }
           return std::optional(equal);
         }});
  }
}

Finding WeightFinding(const OperationCase& given, const Choice& choice) {
  Finding finding = FindingOf(given, "weights", "weights",
                              choice.CompareWeights(choice.AsGiven()));
  std::vector<Trial> trials;
  for (const OtherWeightRule& other : OtherWeightRules(choice)) {
    trials.push_back({other.name, other.sentence, [&choice, rule = other.rule] {
                        return std::optional(choice.CompareWeights(rule));
                      }});
  }
  AddStaleWeights(given, choice.AsGiven(), trials);
  Explain(trials, finding, [&] {
    std::vector<Trial> further =
        Confirmed({choice.WeightFit(finding.comparison.wrong_rows())});
    std::ranges::move(choice.WeightRows(finding.comparison.wrong_rows()),
                      std::back_inserter(further));
    return further;
  });
  finding.places = choice.TokenPlaces(finding.comparison);
  return finding;
}

}  // namespace

void CheckRouter(const OperationCase& given, std::vector<Finding>& findings) {
  CheckScores(given, findings);
  if (given.operation.FindIntegers("expert_ids") == nullptr) return;
  const Choice choice(given);
  findings.push_back(ChoiceFinding(given, choice));
  if (choice.has_weights()) findings.push_back(WeightFinding(given, choice));
}

}  // namespace isoloss::operations
