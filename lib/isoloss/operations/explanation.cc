#include "isoloss/operations/explanation.h"

#include <algorithm>
#include <string_view>
#include <tuple>

namespace isoloss::operations {
namespace {

struct Result {
  const Trial* trial;
  int64_t other;
  int64_t flips;
};

/// Returns "scale_floor" of "scale_floor.x".
std::string_view StemOf(const Trial& trial) {
  const std::string_view name = trial.name;
  return name.substr(0, name.find('.'));
}

/// Returns false if the tensor is right by another computation.
bool TryAll(const std::vector<Trial>& trials, Finding& finding,
            std::vector<Result>& results) {
  for (const Trial& trial : trials) {
    const std::optional<oracle::Comparison> comparison = trial.compare();
    if (!comparison) continue;
    if (!trial.is_right) {
      results.push_back({&trial, comparison->other(), comparison->Row().flips});
    } else if (comparison->other() == 0) {
      finding.comparison = *comparison;
      return false;
    }
  }
  return true;
}

}  // namespace

void Explain(const std::vector<Trial>& trials, Finding& finding,
             const std::function<std::vector<Trial>()>& further) {
  const int64_t others = finding.comparison.other();
  if (others == 0) return;
  std::vector<Result> results;
  if (!TryAll(trials, finding, results)) return;
  std::vector<Trial> more;
  if (further != nullptr && std::ranges::none_of(results, [](const Result& r) {
        return r.other == 0;
      })) {
    more = further();
    if (!TryAll(more, finding, results)) return;
  }
  constexpr int64_t kNearlyAll = 30;  // all but one of this many
  const bool is_known = std::ranges::any_of(results, [&](const Result& result) {
    return !result.trial->is_vague && result.other <= others / kNearlyAll;
  });
  std::erase_if(results, [&](const Result& result) {
    return is_known && result.trial->is_vague;
  });
  // If results are equal, the first one of the catalogue counts.
  std::ranges::stable_sort(results, [](const Result& a, const Result& b) {
    return std::tie(a.other, a.flips) < std::tie(b.other, b.flips);
  });
  if (results.empty() || results[0].other > others / 2) return;
  const Result& best = results[0];
  Explanation explanation = {.name = best.trial->name,
                             .sentence = best.trial->sentence,
                             .other = best.other,
                             .flips = best.flips,
                             .is_guess = best.trial->is_guess};
  // A mistake in both operands does not compete if it explains no more than the
  // same mistake in one.
  const auto competes = [&](const Result& result) {
    return !result.trial->in_both || best.trial->in_both ||
           result.other != best.other ||
           StemOf(*result.trial) != StemOf(*best.trial);
  };
  const auto next_best =
      std::find_if(results.begin() + 1, results.end(), competes);
  if (next_best != results.end() && next_best->other < others) {
    const Result& next = *next_best;
    explanation.runner_up = next.trial->name;
    explanation.runner_up_other = next.other;
    // Flips tell two results apart if one needs many times more flips.
    constexpr int64_t kManyTimes = 4;
    const bool by_flips = next.other == best.other &&
                          next.flips > kManyTimes * (best.flips + kManyTimes);
    // If the best one leaves nothing wrong, the next best must only leave
    // something.
    const int64_t more = best.other == 0 ? 1 : others / 10;
    explanation.is_ambiguous =
        !by_flips && next.other - best.other < std::max<int64_t>(1, more);
  }
  finding.explanation = std::move(explanation);
}

}  // namespace isoloss::operations
