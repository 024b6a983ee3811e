#include "isoloss/gate/pairs_needed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/stats/power.h"

namespace isoloss::gate {
namespace {

using compare::FinalWindow;

/// Returns ": COMMAND", which trains the missing pairs; "" if none is missing.
std::string HowToAdd(int64_t needed, int64_t pairs, bool foreign) {
  if (needed <= pairs) return "";
  if (foreign) {
    return fmt::format(": give logs of {} more seed{} of both arms",
                       needed - pairs, needed - pairs == 1 ? "" : "s");
  }
  return fmt::format(": isoloss verify EXPERIMENT --seeds +{}", needed - pairs);
}

/// Says how to go on if a verdict needs `needed` pairs. The advice is more
/// pairs, within the plan if there is one. After the plan's end only a new
/// experiment helps: whoever added seeds then would choose by these results.
/// The advice begins with the part that fits on a line.
std::string HowToGoOn(int64_t needed, const FinalWindow& window,
                      const Policy& policy, const Looks* looks, bool foreign) {
  const auto pairs = static_cast<int64_t>(window.seeds.size());
  const bool planned = looks != nullptr && looks->unknown.empty();
  if (!planned || looks->MayGoOn()) {
    return fmt::format(
        "{} seed pairs needed for power {:g}{}", needed, policy.power,
        HowToAdd(planned ? looks->planned.back() : needed, pairs, foreign));
  }
  return fmt::format(
      "start a new experiment with {} other seeds and planned looks: these "
      "seeds were tested with all of alpha, and can't be tested again. For "
      "power {:g}: isoloss verify EXPERIMENT --seeds {} --looks {},{} --out "
      "FOLDER. Report both experiments",
      needed, policy.power, window.seeds.back().seed + 1,
      std::max<int64_t>(2, (needed + 1) / 2), std::max<int64_t>(3, needed));
}

}  // namespace

stats::EquivalenceOptions OptionsOf(const Policy& policy, double alpha) {
  return {.margin = policy.Margin(),
          .alpha = alpha,
          .power = policy.power,
          .one_sided = policy.one_sided};
}

double RareHarmUnseen(int64_t pairs) {
  return std::pow(1 - kRareShare, static_cast<double>(pairs));
}

double ChanceOfPass(double sd, int64_t pairs,
                    const stats::EquivalenceOptions& options) {
  const stats::UpperTest rare = {
      .margin = options.margin * kRareMean,
      .alpha = options.alpha / RareHarmUnseen(pairs)};
  return rare.alpha < 1 ? stats::EquivalencePower(0, sd, pairs, options, rare)
                        : stats::EquivalencePower(0, sd, pairs, options);
}

std::string SeedsNeeded(const stats::Summary& differences,
                        const FinalWindow& window, const Policy& policy,
                        const Looks* looks, bool foreign) {
  if (differences.count < 2) {
    return fmt::format(
        "at least {} seed pairs are needed{}; how many suffice is unknown "
        "until two show the spread",
        policy.min_seeds,
        HowToAdd(policy.min_seeds, differences.count, foreign));
  }
  const auto required =
      stats::RequiredPairs(differences, OptionsOf(policy, policy.Alpha()));
  if (!required.has_value()) {
    return fmt::format(
        "more seeds do not help, since the mean difference itself, {:+.3g} %, "
        "is beyond the margin. If {:.2g} % is how far chance spreads single "
        "pairs, begin a new experiment with more seeds; else mend the "
        "candidate, or choose a wider margin before the next one (--margin)",
        differences.mean, differences.sd);
  }
  constexpr int64_t kInReach = 1000;
  if (*required > kInReach) {
    return fmt::format(
        "more than {} seed pairs are needed for power {:g}: the mean "
        "difference, {:+.3g} %, is near the margin, or chance spreads single "
        "pairs too far ({:.2g} %). Choose a wider margin before the next "
        "experiment (--margin), or train larger batches",
        kInReach, policy.power, differences.mean, differences.sd);
  }
  int64_t needed = std::max(*required, policy.min_seeds);
  if (policy.question == compare::Question::kPrecision) {
    // `rare_harm` asks for more of few pairs, and for nothing of many.
    while (needed < kInReach &&
           ChanceOfPass(differences.sd, needed,
                        OptionsOf(policy, policy.Alpha())) < policy.power) {
      ++needed;
    }
  }
  return HowToGoOn(needed, window, policy, looks, foreign);
}

}  // namespace isoloss::gate
