#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/compare/final_window.h"
#include "isoloss/gate/ladder.h"
#include "isoloss/stats/equivalence.h"

namespace isoloss::gate {
namespace {

using compare::FinalWindow;
using compare::SeedDifference;

stats::EquivalenceOptions OptionsOf(const Policy& policy) {
  return {.margin = policy.margin_percent,
          .alpha = policy.alpha,
          .power = policy.power,
          .one_sided = policy.one_sided};
}

/// What to do about too little evidence.
std::string SeedsNeeded(const stats::Summary& differences,
                        const stats::EquivalenceResult& result,
                        const Policy& policy) {
  if (differences.count < 2) {
    return fmt::format(
        "at least {} seed pairs are needed; how many suffice is unknown until "
        "two show the spread",
        policy.min_seeds);
  }
  if (!result.required_pairs.has_value()) {
    return "no number of seeds shows equivalence at this mean difference";
  }
  return fmt::format("{} seed pairs needed for power {:g}",
                     std::max(*result.required_pairs, policy.min_seeds),
                     policy.power);
}

std::string IntervalText(const stats::EquivalenceResult& result,
                         const Policy& policy) {
  if (!std::isfinite(result.lower) || !std::isfinite(result.upper)) {
    return "no interval";
  }
  return fmt::format("{:g} % interval [{:+.3f} %, {:+.3f} %]",
                     100 * (1 - 2 * policy.alpha), result.lower, result.upper);
}

/// Where the two runs of the worst seed are furthest apart.
std::string WhereToLook(const compare::Pairing& pairing,
                        const FinalWindow& window) {
  const auto worst =
      std::max_element(window.seeds.begin(), window.seeds.end(),
                       [](const SeedDifference& a, const SeedDifference& b) {
                         return a.max_gap_nats < b.max_gap_nats;
                       });
  const auto& pair =
      pairing.pairs[static_cast<size_t>(worst - window.seeds.begin())];
  return fmt::format(
      "isoloss compare {} {} (largest gap {:.4g} nats at step {} of seed {})",
      compare::Label(*pair.baseline), compare::Label(*pair.candidate),
      worst->max_gap_nats, worst->max_gap_step, worst->seed);
}

/// One equivalence test; differences in percent.
Check TestDifferences(std::string name, std::string quantity,
                      const std::vector<double>& percent,
                      const std::string& scope, const std::string& where,
                      const Policy& policy) {
  const stats::Summary summary = stats::Summarize(percent);
  const auto result = stats::TestEquivalence(summary, OptionsOf(policy));
  Check check{.level = "L5",
              .name = std::move(name),
              .quantity = std::move(quantity),
              .value = summary.mean,
              .limit = policy.margin_percent,
              .unit = "%",
              .evidence = fmt::format(
                  "{}, {} seed pair{}, {}", IntervalText(result, policy),
                  summary.count, summary.count == 1 ? "" : "s", scope)};
  const std::string side = policy.one_sided ? "+" : "+-";
  if (summary.count < policy.min_seeds ||
      result.outcome == stats::Equivalence::kUndecided) {
    check.outcome = Outcome::kInconclusive;
    check.relation = "not shown to be within " + side;
    check.next = SeedsNeeded(summary, result, policy);
  } else if (result.outcome == stats::Equivalence::kInside) {
    check.outcome = Outcome::kPass;
    check.relation = "within " + side;
  } else {
    check.outcome = Outcome::kFail;
    check.relation = "outside " + side;
    check.next = where;
  }
  return check;
}

Check TestFinalWindow(const FinalWindow& window, const std::string& where,
                      const Policy& policy) {
  std::vector<double> percent;
  for (const SeedDifference& seed : window.seeds) {
    percent.push_back(100 * seed.final_window);
  }
  return TestDifferences(
      "final_window", "mean paired loss difference", percent,
      fmt::format("steps {} to {}", window.first_step, window.last_step), where,
      policy);
}

Check TestHeldOut(const FinalWindow& window, const std::string& where,
                  const Policy& policy) {
  std::vector<double> percent;
  for (const SeedDifference& seed : window.seeds) {
    percent.push_back(100 * seed.held_out.value());
  }
  Check check = TestDifferences(
      "held_out", "mean paired held-out difference", percent,
      fmt::format("step {}", *window.held_out_step), where, policy);
  if (*window.held_out_step < window.first_step) {
    check.outcome = Outcome::kInconclusive;
    check.next = fmt::format(
        "evaluate within the final window (steps {} to {}): this evaluation "
        "says nothing about the end of training",
        window.first_step, window.last_step);
  }
  return check;
}

/// Figures that others gate on, for comparison.
void AppendMeasures(const FinalWindow& window, Judgement& judgement) {
  std::vector<double> window_nats;
  std::vector<double> last_100;
  std::vector<double> rmse;
  const SeedDifference* largest = &window.seeds[0];
  for (const SeedDifference& seed : window.seeds) {
    window_nats.push_back(seed.final_window_nats);
    last_100.push_back(seed.last_100_nats);
    rmse.push_back(seed.trajectory_rmse_nats);
    if (seed.max_gap_nats > largest->max_gap_nats) largest = &seed;
  }
  auto& measures = judgement.measures;
  measures.push_back({"final_window_nats", stats::Mean(window_nats), "nats",
                      "mean paired difference; 0.01 nats is a common line"});
  measures.push_back({"last_100_nats", stats::Mean(last_100), "nats",
                      "mean paired difference of the last 100 steps"});
  measures.push_back({"trajectory_rmse", stats::Mean(rmse), "nats",
                      "root mean square over all steps, mean over seeds"});
  measures.push_back({"max_step_gap", largest->max_gap_nats, "nats",
                      fmt::format("largest single difference: step {} of "
                                  "seed {}",
                                  largest->max_gap_step, largest->seed)});
}

}  // namespace

Climb ClimbFinalWindow(const compare::Pairing& pairing, Judgement& judgement) {
  const Policy& policy = judgement.policy;
  judgement.final_window =
      compare::CompareFinalWindow(pairing, policy.window_share);
  const FinalWindow& window = *judgement.final_window;
  const std::string where = WhereToLook(pairing, window);
  judgement.checks.push_back(TestFinalWindow(window, where, policy));
  if (window.held_out_step.has_value()) {
    judgement.checks.push_back(TestHeldOut(window, where, policy));
  }
  AppendMeasures(window, judgement);
  return Climb::kGoOn;
}

}  // namespace isoloss::gate
