#include "isoloss/operations/explanation.h"

#include <algorithm>
#include <tuple>

namespace isoloss::operations {
namespace {

struct Result {
  const Trial* trial;
  int64_t other;
  int64_t flips;
};

}  // namespace

void Explain(const std::vector<Trial>& trials, Finding& finding) {
  const int64_t others = finding.comparison.other();
  if (others == 0) return;
  std::vector<Result> results;
  for (const Trial& trial : trials) {
    const std::optional<oracle::Comparison> comparison = trial.compare();
    if (!comparison) continue;
    if (trial.is_right) {
      if (comparison->other() > 0) continue;
      finding.comparison = *comparison;
      return;
    }
    results.push_back({&trial, comparison->other(), comparison->Row().flips});
  }
  // Of equal ones the first of the catalogue.
  std::ranges::stable_sort(results, [](const Result& a, const Result& b) {
    return std::tie(a.other, a.flips) < std::tie(b.other, b.flips);
  });
  if (results.empty() || results[0].other > others / 2) return;
  const Result& best = results[0];
  Explanation explanation = {.name = best.trial->name,
                             .sentence = best.trial->sentence,
                             .other = best.other,
                             .flips = best.flips};
  if (results.size() > 1 && results[1].other < others) {
    const Result& next = results[1];
    explanation.runner_up = next.trial->name;
    explanation.runner_up_other = next.other;
    // Flips tell two apart if one needs many times more of them.
    constexpr int64_t kManyTimes = 4;
    const bool by_flips = next.other == best.other &&
                          next.flips > kManyTimes * (best.flips + kManyTimes);
    // What leaves none is not told apart by how many another one leaves.
    const int64_t more = best.other == 0 ? 1 : others / 10;
    explanation.is_ambiguous =
        !by_flips && next.other - best.other < std::max<int64_t>(1, more);
  }
  finding.explanation = std::move(explanation);
}

}  // namespace isoloss::operations
