#include "isoloss/step_checks/router_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate_math.h"

namespace isoloss::step_checks {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Exactly;
using oracle::Grid;
using oracle::kTiny;
using oracle::kUnitRoundoff;
using oracle::Sum32;

/// The relative errors of the model's Exp and Sigmoid are at most 2 and 3 ulp.
constexpr double kScoreExpError = 4 * kUnitRoundoff;
constexpr double kScoreSigmoidError = 6 * kUnitRoundoff;
/// torchtitan adds this to the sum of scores, which is a divisor.
constexpr float kNormFloor = 1e-20f;

/// A step of the choice may take such an expert or group.
struct Candidate {
  float score = 0.0f;  // as FP32 computes it
  double exact = 0.0;
  double bound = 0.0;
  bool open = true;  // may still be taken
};

/// Returns the open candidate of the highest FP32 score, the first of equals,
/// or -1 if none is open.
int Best(std::span<const Candidate> candidates) {
  int best = -1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].open) continue;
    if (best < 0 ||
        candidates[i].score > candidates[static_cast<size_t>(best)].score) {
      best = static_cast<int>(i);
    }
  }
  return best;
}

/// Returns whether rounding may make `taken` the best one. It may not at an
/// exact tie, which the rule decides.
bool MayBeBest(std::span<const Candidate> candidates, size_t taken) {
  const int best = Best(candidates);
  if (best < 0 || !candidates[taken].open) return false;
  if (static_cast<size_t>(best) == taken) return true;
  const Candidate& a = candidates[static_cast<size_t>(best)];
  const Candidate& b = candidates[taken];
  return a.exact != b.exact &&
         std::fabs(a.exact - b.exact) <= a.bound + b.bound;
}

std::vector<Candidate> Experts(std::span<const float> scores,
                               std::span<const float> bias) {
  std::vector<Candidate> experts;
  for (size_t e = 0; e < scores.size(); ++e) {
    const double exact =
        static_cast<double>(scores[e]) + static_cast<double>(bias[e]);
    experts.push_back({.score = scores[e] + bias[e],
                       .exact = exact,
                       .bound = kUnitRoundoff * std::fabs(exact) + kTiny});
  }
  return experts;
}

/// Returns the groups. A group's score is the sum of its two best experts'
/// scores.
std::vector<Candidate> ChosenGroups(const std::vector<Candidate>& experts,
                                    size_t count) {
  const size_t size = experts.size() / count;
  std::vector<Candidate> groups;
  for (size_t g = 0; g < count; ++g) {
    std::vector<Candidate> members(
        experts.begin() + static_cast<std::ptrdiff_t>(g * size),
        experts.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    const auto first = static_cast<size_t>(Best(members));
    members[first].open = false;
    const Candidate& a = members[first];
    const Candidate& b = members[static_cast<size_t>(Best(members))];
    groups.push_back(
        {.score = a.score + b.score,
         .exact = a.exact + b.exact,
         .bound = oracle::Gamma(2) * (std::fabs(a.exact) + std::fabs(b.exact)) +
                  2 * kTiny});
  }
  return groups;
}

/// Compares one token's choice with what may be chosen.
class Choice {
 public:
  Choice(const model::ModelConfig& config, std::span<const float> scores,
         std::span<const float> bias)
      : config_(config), experts_(Experts(scores, bias)) {
    if (config.num_expert_groups > 0) {
      groups_ = ChosenGroups(experts_, config.num_expert_groups);
    }
  }

  /// Returns the rule's choice in FP32.
  std::vector<int32_t> Own() const {
    std::vector<Candidate> groups = groups_;
    for (size_t n = 0; n < GroupsToKeep(); ++n) {
      groups[static_cast<size_t>(Best(groups))].open = false;
    }
    std::vector<Candidate> experts = OpenIn(groups);
    std::vector<int32_t> ids;
    for (size_t k = 0; k < config_.top_k; ++k) {
      ids.push_back(static_cast<int32_t>(Best(experts)));
      experts[static_cast<size_t>(ids.back())].open = false;
    }
    return ids;
  }

  /// Returns whether rounding explains `ids`.
  bool MayBe(std::span<const int32_t> ids) const {
    std::vector<Candidate> groups = groups_;
    return MayBeWith(groups, GroupsToKeep(), ids);
  }

 private:
  size_t GroupsToKeep() const {
    return groups_.empty() ? 0 : config_.num_limited_groups;
  }

  /// Returns the experts; those outside the taken groups are closed.
  std::vector<Candidate> OpenIn(const std::vector<Candidate>& groups) const {
    std::vector<Candidate> experts = experts_;
    if (groups.empty()) return experts;
    const size_t size = experts.size() / groups.size();
    for (size_t e = 0; e < experts.size(); ++e) {
      experts[e].open = !groups[e / size].open;
    }
    return experts;
  }

  /// Tries each group that may be the best of those not taken, `left` times.
  /// There is more than one only within rounding.
  bool MayBeWith(std::vector<Candidate>& groups, size_t left,
                 std::span<const int32_t> ids) const {
    if (left == 0) return ExpertsMayBe(OpenIn(groups), ids);
    for (size_t g = 0; g < groups.size(); ++g) {
      if (!MayBeBest(groups, g)) continue;
      groups[g].open = false;
      if (MayBeWith(groups, left - 1, ids)) return true;
      groups[g].open = true;
    }
    return false;
  }

  static bool ExpertsMayBe(std::vector<Candidate> experts,
                           std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      if (id < 0 || static_cast<size_t>(id) >= experts.size()) return false;
      if (!MayBeBest(experts, static_cast<size_t>(id))) return false;
      experts[static_cast<size_t>(id)].open = false;
    }
    return true;
  }

  const model::ModelConfig& config_;
  std::vector<Candidate> experts_;
  std::vector<Candidate> groups_;
};

Estimate Sigmoid(float logit) {
  const double s = 1.0 / (1.0 + portable::Exp(-static_cast<double>(logit)));
  return {.exact = s,
          .bound = kScoreSigmoidError * s + kTiny,
          .noise = 0.3 * oracle::Ulp(s)};
}

/// Returns the softmax of a token's logits.
std::vector<Estimate> Softmax(std::span<const float> logits) {
  const double max =
      static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  std::vector<Estimate> scores;
  Sum32 sum;
  for (const float logit : logits) {
    const double x = static_cast<double>(logit) - max;
    const double e = portable::Exp(x);
    const double error = oracle::Gamma(1) * std::fabs(x) + kScoreExpError;
    scores.push_back({.exact = e,
                      .bound = e * error + kTiny,
                      .noise = 0.3 * oracle::Ulp(e)});
    sum.Add(scores.back());
  }
  for (Estimate& score : scores) {
    score = Rounded32(Quotient(score, sum.Value()), 2);
  }
  return scores;
}

class RouterOracle {
 public:
  RouterOracle(const StepRecord& record, const model::ModelConfig& config,
               size_t layer, ReportSink& sink)
      : c_(config),
        layer_(layer),
        name_("layers." + std::to_string(layer) + ".moe.router"),
        sink_(sink),
        logits_(record.At(name_ + ".gate_output").values.view()),
        scores_(record.At(name_ + ".scores_output").values.view()),
        weights_(record.At(name_ + ".topk_weights_output").values.view()),
        dweights_(record.At(name_ + ".topk_weights_gradient").values.view()),
        dlogits_(record.At(name_ + ".gate_gradient").values.view()),
        ids_(record.ExpertIds(name_)) {}

  void CheckScores() const;
  void CheckChoice(const RoutingRule& rule) const;
  /// Returns false if ids are out of range, so that nothing can be computed
  /// with them.
  bool IdsAreValid() const;
  void CheckWeights() const;
  void CheckGradient() const;
  void CheckCounts(std::span<const int64_t> tokens_per_expert) const;

 private:
  std::span<const float> ScoresOf(size_t t) const {
    return {scores_.Row(t), scores_.cols()};
  }
  std::span<const int32_t> IdsOf(size_t t) const {
    return {ids_.Row(t), ids_.cols()};
  }
  Estimate Score(size_t t, size_t slot) const {
    return Exactly(
        static_cast<double>(scores_(t, static_cast<size_t>(ids_(t, slot)))));
  }
  /// Returns the id that the rule gives if the router does not choose.
  int32_t RequiredId(const RoutingRule& rule, size_t t, size_t slot) const;
  ChoiceClass Classify(const RoutingRule& rule, size_t t) const;
  /// Returns the divisor of a token's scores.
  Estimate Divisor(size_t t) const;
  std::vector<Estimate> LogitGradients(size_t t) const;

  const model::ModelConfig& c_;
  const size_t layer_;
  const std::string name_;
  ReportSink& sink_;
  const MatrixView<const float> logits_;    // [T, E]
  const MatrixView<const float> scores_;    // [T, E]
  const MatrixView<const float> weights_;   // [T, K]
  const MatrixView<const float> dweights_;  // [T, K]
  const MatrixView<const float> dlogits_;   // [T, E]
  const MatrixView<const int32_t> ids_;     // [T, K]
};

void RouterOracle::CheckScores() const {
  Comparison comparison(Grid::kFp32);
  for (size_t t = 0; t < scores_.rows(); ++t) {
    const std::span<const float> logits(logits_.Row(t), logits_.cols());
    std::vector<Estimate> expected;
    if (c_.score_function == model::ScoreFunction::kSoftmax) {
      expected = Softmax(logits);
    } else {
      for (const float logit : logits) expected.push_back(Sigmoid(logit));
    }
    for (size_t e = 0; e < expected.size(); ++e) {
      comparison.Add(t, e, scores_(t, e), expected[e]);
    }
  }
  sink_.Add(name_ + ".scores_output", comparison);
}

int32_t RouterOracle::RequiredId(const RoutingRule& rule, size_t t,
                                 size_t slot) const {
  if (rule.mode == model::RoutingMode::kReplay) return rule.replayed(t, slot);
  return static_cast<int32_t>((t * c_.top_k + slot) % c_.num_experts);
}

ChoiceClass RouterOracle::Classify(const RoutingRule& rule, size_t t) const {
  if (rule.mode == model::RoutingMode::kLearned) {
    return ClassifyChoice(c_, ScoresOf(t), rule.bias, IdsOf(t));
  }
  for (size_t k = 0; k < c_.top_k; ++k) {
    if (ids_(t, k) != RequiredId(rule, t, k)) return ChoiceClass::kOther;
  }
  return ChoiceClass::kEqual;
}

void RouterOracle::CheckChoice(const RoutingRule& rule) const {
  runlog::OracleRoutingRow row = {
      .layer = static_cast<int64_t>(layer_ - c_.n_dense_layers),
      .tokens = static_cast<int64_t>(ids_.rows())};
  for (size_t t = 0; t < ids_.rows(); ++t) {
    const ChoiceClass choice = Classify(rule, t);
    if (choice == ChoiceClass::kFlip) ++row.flips;
    if (choice == ChoiceClass::kOther) ++row.other;
  }
  row.digest = static_cast<int64_t>(RoutingDigestOf(ids_));
  sink_.AddRouting(row);
}

bool RouterOracle::IdsAreValid() const {
  for (size_t t = 0; t < ids_.rows(); ++t) {
    for (const int32_t id : IdsOf(t)) {
      if (id < 0 || static_cast<size_t>(id) >= c_.num_experts) return false;
    }
  }
  return true;
}

Estimate RouterOracle::Divisor(size_t t) const {
  if (!c_.route_norm) return Exactly(1.0);
  Sum32 sum;
  for (size_t k = 0; k < c_.top_k; ++k) sum.Add(Score(t, k));
  sum.Add(Exactly(static_cast<double>(kNormFloor)));
  return sum.Value();
}

void RouterOracle::CheckWeights() const {
  const auto scale = static_cast<double>(static_cast<float>(c_.route_scale));
  Comparison comparison(Grid::kFp32);
  for (size_t t = 0; t < ids_.rows(); ++t) {
    const Estimate divisor = Divisor(t);
    for (size_t k = 0; k < c_.top_k; ++k) {
      Estimate share = Score(t, k);
      if (c_.route_norm) share = Rounded32(Quotient(share, divisor));
      comparison.Add(t, k, weights_(t, k), share * scale);
    }
  }
  sink_.Add(name_ + ".topk_weights_output", comparison);
}

/// Returns the gradients of one token, [E].
std::vector<Estimate> RouterOracle::LogitGradients(size_t t) const {
  const auto scale = static_cast<double>(static_cast<float>(c_.route_scale));
  const Estimate divisor = Divisor(t);
  // Normalising removes the part that only scales the sum.
  Sum32 mean;
  for (size_t k = 0; c_.route_norm && k < c_.top_k; ++k) {
    const Estimate share = Rounded32(Quotient(Score(t, k), divisor));
    mean.Add(share * static_cast<double>(dweights_(t, k)));
  }
  const Estimate factor = oracle::Rounded32(Quotient(Exactly(scale), divisor));
  std::vector<Estimate> gradients(c_.num_experts);
  Sum32 dot;
  for (size_t k = 0; k < c_.top_k; ++k) {
    const Estimate dweight = Exactly(static_cast<double>(dweights_(t, k)));
    const Estimate rest = Rounded32(Difference(dweight, mean.Value(1)));
    Estimate& dscore = gradients[static_cast<size_t>(ids_(t, k))];
    dscore = Rounded32(Product(factor, rest));
    dot.Add(Product(dscore, Score(t, k)));
  }
  const bool sigmoid = c_.score_function == model::ScoreFunction::kSigmoid;
  for (size_t e = 0; e < c_.num_experts; ++e) {
    const Estimate score = Exactly(static_cast<double>(scores_(t, e)));
    Estimate& gradient = gradients[e];
    if (!sigmoid) {
      gradient = Product(score, Rounded32(Difference(gradient, dot.Value(1))));
    } else {
      const Estimate rest = Rounded32(Difference(Exactly(1.0), score));
      gradient = Product(gradient, Rounded32(Product(score, rest)));
    }
  }
  return gradients;
}

void RouterOracle::CheckGradient() const {
  Comparison comparison(Grid::kFp32);
  for (size_t t = 0; t < ids_.rows(); ++t) {
    const std::vector<Estimate> expected = LogitGradients(t);
    for (size_t e = 0; e < expected.size(); ++e) {
      comparison.Add(t, e, dlogits_(t, e), expected[e]);
    }
  }
  sink_.Add(name_ + ".gate_gradient", comparison);
}

void RouterOracle::CheckCounts(
    std::span<const int64_t> tokens_per_expert) const {
  std::vector<int64_t> counts(c_.num_experts);
  for (size_t t = 0; t < ids_.rows(); ++t) {
    for (const int32_t id : IdsOf(t)) ++counts[static_cast<size_t>(id)];
  }
  Comparison comparison(Grid::kFp32);
  for (size_t e = 0; e < counts.size(); ++e) {
    // The conversion is exact, since batches are far below 2^24 tokens.
    comparison.AddExact(0, e, static_cast<float>(tokens_per_expert[e]),
                        static_cast<float>(counts[e]));
  }
  sink_.Add(name_ + "_tokens_per_expert", comparison);
}

}  // namespace

std::vector<int32_t> ChooseExperts(const model::ModelConfig& config,
                                   std::span<const float> scores,
                                   std::span<const float> bias) {
  return Choice(config, scores, bias).Own();
}

ChoiceClass ClassifyChoice(const model::ModelConfig& config,
                           std::span<const float> scores,
                           std::span<const float> bias,
                           std::span<const int32_t> expert_ids) {
  const Choice choice(config, scores, bias);
  const std::vector<int32_t> own = choice.Own();
  if (std::equal(own.begin(), own.end(), expert_ids.begin(),
                 expert_ids.end())) {
    return ChoiceClass::kEqual;
  }
  return choice.MayBe(expert_ids) ? ChoiceClass::kFlip : ChoiceClass::kOther;
}

uint64_t RoutingDigestOf(MatrixView<const int32_t> ids) {
  uint64_t sum = 0;
  for (size_t t = 0; t < ids.rows(); ++t) {
    const std::array<uint64_t, 2> words = {
        t, DigestOf(ids.Row(t), ids.cols() * sizeof(int32_t))};
    sum += DigestOf(words.data(), sizeof(words));
  }
  return sum;
}

void CheckRouter(const StepRecord& record, const model::ModelConfig& config,
                 size_t layer, const RoutingRule& rule,
                 std::span<const int64_t> tokens_per_expert, ReportSink& sink) {
  const RouterOracle oracle(record, config, layer, sink);
  oracle.CheckScores();
  oracle.CheckChoice(rule);
  if (!oracle.IdsAreValid()) return;
  oracle.CheckWeights();
  oracle.CheckGradient();
  oracle.CheckCounts(tokens_per_expert);
}

}  // namespace isoloss::step_checks
