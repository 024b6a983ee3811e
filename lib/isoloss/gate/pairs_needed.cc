#include "isoloss/gate/pairs_needed.h"

#include <fmt/format.h>

#include <algorithm>

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
  return HowToGoOn(std::max(*required, policy.min_seeds), window, policy, looks,
                   foreign);
}

}  // namespace isoloss::gate
