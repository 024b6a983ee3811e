// Compares the scores of a router with those of its logits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "isoloss/kernels/elementary.h"
#include "isoloss/operations/check.h"
#include "isoloss/operations/estimates.h"
#include "isoloss/operations/fit.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

double ScoreAt(const Floats& tensor, size_t row, size_t col) {
  return static_cast<double>(tensor.Rows()(row, col));
}

/// Computes 1 / (1 + exp(-x)): exp within 2 ulp is 4 roundings, then one
/// addition and one division. Some programs round the division once more, which
/// makes 7.
Estimate Sigmoid(double x) {
  const double q = 1.0 / (1.0 + kernels::Exp(-x));
  return Around(q, q, 7);
}

/// Computes exp(x - max) / sum. The difference d is rounded once, which moves
/// exp by |d| times that, and |d| exp(d) <= 1/e of the largest. exp within 2
/// ulp is 4 roundings, then n additions and one division follow. A result of at
/// most `size` is off by
///   |d| q + (n + 6) roundings.
std::vector<Estimate> Softmax(const Floats& logits, size_t row) {
  const size_t n = logits.extent[1];
  double most = -HUGE_VAL;
  for (size_t e = 0; e < n; ++e) most = std::max(most, ScoreAt(logits, row, e));
  double sum = 0.0;
  double moved = 0.0;  // of the sum
  for (size_t e = 0; e < n; ++e) {
    const double d = ScoreAt(logits, row, e) - most;
    sum += kernels::Exp(d);
    moved += std::fabs(d) * kernels::Exp(d) * oracle::kUnitRoundoff;
  }
  std::vector<Estimate> result;
  for (size_t e = 0; e < n; ++e) {
    const double d = ScoreAt(logits, row, e) - most;
    const double q = kernels::Exp(d) / sum;
    Estimate estimate = Around(q, q, n + 6);
    estimate.bound +=
        2.0 * q * (std::fabs(d) * oracle::kUnitRoundoff + moved / sum);
    result.push_back(estimate);
  }
  return result;
}

/// Calls use(token, expert, score). The result is multiplied by `factor`.
template <typename Use>
void ForEachScore(const Floats& logits, bool softmax, double factor,
                  const Use& use) {
  for (size_t t = 0; t < logits.extent[0]; ++t) {
    const std::vector<Estimate> row =
        softmax ? Softmax(logits, t) : std::vector<Estimate>{};
    for (size_t e = 0; e < logits.extent[1]; ++e) {
      const Estimate score = softmax ? row[e] : Sigmoid(ScoreAt(logits, t, e));
      use(t, e,
          factor == 1.0 ? score
                        : score * factor +
                              Around(0.0, std::fabs(factor * score.exact), 2));
    }
  }
}

Comparison CompareScores(const Floats& logits, const Floats& scores, Grid grid,
                         bool softmax, double factor = 1.0) {
  Comparison comparison(grid);
  ForEachScore(logits, softmax, factor,
               [&](size_t t, size_t e, const Estimate& score) {
                 comparison.Add(t, e, scores.Rows()(t, e), score);
               });
  return comparison;
}

/// Returns logarithms of the least and the largest number that FP32 may round
/// to `score` after some eight roundings.
std::pair<double, double> LogarithmsOf(float score, Grid grid) {
  constexpr double kEight = 8 * oracle::kUnitRoundoff;
  return {kernels::Log(Boundary(grid, score, false) * (1 - kEight)),
          kernels::Log(Boundary(grid, score, true) * (1 + kEight))};
}

/// Returns fits of two factors: one of the logits, one of the scores.
std::vector<Fit> ScoreFits(const Floats& logits, const Floats& scores,
                           Grid grid, bool softmax) {
  FactorRange of_logits, of_scores;
  const size_t experts = logits.extent[1];
  for (size_t t = 0; t < logits.extent[0]; ++t) {
    const float* row = scores.Rows().Row(t);
    // In a softmax, the logarithms of two scores differ by the difference of
    // their logits. In a sigmoid, the logit is the difference of the logarithms
    // of the score and of 1 less the score.
    const auto largest =
        static_cast<size_t>(std::max_element(row, row + experts) - row);
    const auto [low_base, high_base] = LogarithmsOf(row[largest], grid);
    for (size_t e = 0; e < experts; ++e) {
      const auto [low, high] = LogarithmsOf(row[e], grid);
      if (softmax) {
        const double x = ScoreAt(logits, t, e) - ScoreAt(logits, t, largest);
        of_logits.Narrow((low - high_base) / x, (high - low_base) / x);
      } else {
        const double x = ScoreAt(logits, t, e);
        of_logits.Narrow((low - kernels::Log(1 - kernels::Exp(low))) / x,
                         (high - kernels::Log(1 - kernels::Exp(high))) / x);
      }
    }
  }
  ForEachScore(logits, softmax, 2.0,
               [&](size_t t, size_t e, const Estimate& twice) {
                 of_scores.Add(twice.exact / 2, 0.0, scores.Rows()(t, e), grid,
                               twice.bound);
               });
  return {{.name = "logits_scaled",
           .range = of_logits,
           .sentence =
               [](double factor) {
                 return fmt::format(
                     "scores are those of {:.9g} times the "
                     "logits",
                     factor);
               },
           .compare =
               [&logits, &scores, grid, softmax](double factor) {
                 Floats scaled = logits;
                 for (float& logit : scaled.values) {
                   logit =
                       static_cast<float>(static_cast<double>(logit) * factor);
                 }
                 return CompareScores(scaled, scores, grid, softmax);
               }},
          {.name = "scores_scaled",
           .range = of_scores,
           .not_zero = true,
           .sentence =
               [](double factor) {
                 return fmt::format("scores were multiplied by {:.9g}", factor);
               },
           .compare =
               [&logits, &scores, grid, softmax](double factor) {
                 return CompareScores(logits, scores, grid, softmax, factor);
               }}};
}

}  // namespace

void CheckScores(const OperationCase& given, std::vector<Finding>& findings) {
  const Floats& scores = *given.operation.Find("scores");
  const Floats* logits = given.operation.Find("logits");
  if (logits == nullptr) return;
  const Grid grid = GridOf(scores, "scores", given.where);
  const bool softmax = given.operation.Text("score_function") == "softmax";
  Finding finding = FindingOf(given, "scores", "scores",
                              CompareScores(*logits, scores, grid, softmax));
  const Floats* older =
      given.previous == nullptr ? nullptr : given.previous->Find("logits");
  if (older != nullptr && older->extent != logits->extent) older = nullptr;
  Explain(
      {{"logits_stale", "scores are of the logits of the step before",
        [&]() -> std::optional<Comparison> {
          if (older == nullptr) return std::nullopt;
          return CompareScores(*older, scores, grid, softmax);
        }},
       {softmax ? "sigmoid" : "softmax",
        softmax ? "scores are sigmoids, not a softmax"
                : "scores are a softmax, not sigmoids",
        [&] {
          return std::optional(CompareScores(*logits, scores, grid, !softmax));
        }},
       {"logits", "scores are the logits themselves",
        [&]() -> std::optional<Comparison> {
          Comparison comparison(grid);
          for (size_t i = 0; i < scores.values.size(); ++i) {
            comparison.Add(i / scores.extent[1], i % scores.extent[1],
                           scores.values[i],
                           {.exact = static_cast<double>(logits->values[i])});
          }
          return comparison;
        }}},
      finding, [&] {
        std::vector<Trial> trials =
            Confirmed(ScoreFits(*logits, scores, grid, softmax));
        std::ranges::move(TrialsOfRows({.found = scores.Rows(),
                                        .grid = grid,
                                        .for_each =
                                            [&](const auto& use) {
                                              ForEachScore(*logits, softmax,
                                                           1.0, use);
                                            },
                                        .noun = "token",
                                        .content = "scores"},
                                       finding.comparison.wrong_rows()),
                          std::back_inserter(trials));
        return trials;
      });
  finding.places = PlacesOf(finding.comparison, scores.extent[0], "tokens");
  findings.push_back(std::move(finding));
}

}  // namespace isoloss::operations
