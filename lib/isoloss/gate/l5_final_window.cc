#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/compare/final_window.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/null_test.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/stats/autocovariance.h"
#include "isoloss/stats/bootstrap.h"
#include "isoloss/stats/equivalence.h"
#include "isoloss/stats/student_t.h"

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

/// ": COMMAND" that trains what is missing; "" if nothing is.
std::string HowToAdd(int64_t needed, int64_t pairs) {
  if (needed <= pairs) return "";
  return fmt::format(": isoloss verify EXPERIMENT --seeds +{}", needed - pairs);
}

/// What to do about too little evidence.
std::string SeedsNeeded(const stats::Summary& differences,
                        const stats::EquivalenceResult& result,
                        const Policy& policy) {
  if (differences.count < 2) {
    return fmt::format(
        "at least {} seed pairs are needed{}; how many suffice is unknown "
        "until two show the spread",
        policy.min_seeds, HowToAdd(policy.min_seeds, differences.count));
  }
  if (!result.required_pairs.has_value()) {
    return "no number of seeds shows equivalence at this mean difference";
  }
  const int64_t needed = std::max(*result.required_pairs, policy.min_seeds);
  return fmt::format("{} seed pairs needed for power {:g}{}", needed,
                     policy.power, HowToAdd(needed, differences.count));
}

bool HasInterval(const stats::EquivalenceResult& result) {
  return std::isfinite(result.lower) && std::isfinite(result.upper);
}

std::string IntervalText(const stats::EquivalenceResult& result,
                         const Policy& policy) {
  if (!HasInterval(result)) return "no interval";
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

/// The spread of final windows between seeds, from an ensemble of good pairs.
struct KnownSpread {
  double sd_percent = 0;
  int64_t members = 0;
  std::string source;
};

/// Mean over the window of 100 (L_c - L_b) / L_b; empty if the member was not
/// recorded that far.
std::optional<double> WindowPercent(const runlog::EnsembleMember& member,
                                    const FinalWindow& window) {
  const auto& candidate = member.steps;
  const auto& baseline = member.reference_steps;
  std::vector<double> percent;
  const size_t steps =
      std::min(candidate.loss_nats.size(), baseline.loss_nats.size());
  for (size_t i = 0; i < steps; ++i) {
    const int64_t step = candidate.step[i];
    if (step != baseline.step[i]) return std::nullopt;
    if (step < window.first_step || step > window.last_step) continue;
    percent.push_back(100 * (candidate.loss_nats[i] - baseline.loss_nats[i]) /
                      baseline.loss_nats[i]);
  }
  const int64_t needed = window.last_step - window.first_step + 1;
  if (static_cast<int64_t>(percent.size()) != needed) return std::nullopt;
  return stats::Mean(percent);
}

/// Of a seeds ensemble of this configuration whose members were recorded to
/// the end; empty if there is none.
std::optional<KnownSpread> SpreadOfEnsemble(const Evidence& evidence,
                                            const FinalWindow& window,
                                            const Policy& policy) {
  if (evidence.seeds == nullptr ||
      policy.question != compare::Question::kPrecision ||
      !Mismatches(*evidence.seeds, runlog::EnsembleKind::kSeeds,
                  *evidence.pairing)
           .empty()) {
    return std::nullopt;
  }
  std::vector<double> percent;
  for (const auto* member : UsableMembers(*evidence.seeds, *evidence.pairing)) {
    const auto value = WindowPercent(*member, window);
    if (value.has_value()) percent.push_back(*value);
  }
  const stats::Summary summary = stats::Summarize(percent);
  if (summary.count < policy.min_members || !std::isfinite(summary.sd)) {
    return std::nullopt;
  }
  return KnownSpread{summary.sd, summary.count, Label(*evidence.seeds)};
}

/// The test of stats::TestEquivalence with a spread that other pairs showed:
/// mean -+ t_{1-alpha,members-1} sd / sqrt(n).
stats::EquivalenceResult TestWithSpread(const stats::Summary& summary,
                                        const KnownSpread& spread,
                                        const Policy& policy) {
  const double half =
      stats::StudentTQuantile(1 - policy.alpha,
                              static_cast<double>(spread.members - 1)) *
      spread.sd_percent / std::sqrt(static_cast<double>(summary.count));
  stats::EquivalenceResult result;
  result.lower = summary.mean - half;
  result.upper = summary.mean + half;
  const double margin = policy.margin_percent;
  const bool above = result.lower >= margin;
  const bool below = !policy.one_sided && result.upper <= -margin;
  if (above || below) {
    result.outcome = stats::Equivalence::kOutside;
  } else if (result.upper < margin &&
             (policy.one_sided || result.lower > -margin)) {
    result.outcome = stats::Equivalence::kInside;
  }
  return result;
}

/// What no benign change does, however few pairs there are. Of precision
/// nobody knows that before several seeds have shown the spread.
bool IsGross(const stats::Summary& summary, const Policy& policy) {
  const double limit = policy.gross_factor * policy.margin_percent;
  return policy.question == compare::Question::kRegression &&
         (summary.mean > limit || (!policy.one_sided && summary.mean < -limit));
}

/// One equivalence test; differences in percent. With a single pair, `spread`
/// stands in for what one pair can't show.
Check TestDifferences(std::string name, std::string quantity,
                      const std::vector<double>& percent,
                      const std::string& scope, const std::string& where,
                      const Policy& policy,
                      const std::optional<KnownSpread>& spread = std::nullopt) {
  const stats::Summary summary = stats::Summarize(percent);
  const bool borrowed = summary.count == 1 && spread.has_value();
  const auto result = borrowed
                          ? TestWithSpread(summary, *spread, policy)
                          : stats::TestEquivalence(summary, OptionsOf(policy));
  Check check{.name = std::move(name),
              .quantity = std::move(quantity),
              .value = summary.mean,
              .limit = policy.margin_percent,
              .unit = "%",
              .evidence = fmt::format(
                  "{}, {} seed pair{}, {}", IntervalText(result, policy),
                  summary.count, summary.count == 1 ? "" : "s", scope)};
  if (HasInterval(result)) {
    check.lower = result.lower;
    check.upper = result.upper;
  }
  if (borrowed) {
    check.evidence +=
        fmt::format(", spread {:.4f} % of {} pairs of {}", spread->sd_percent,
                    spread->members, spread->source);
  }
  const std::string side = policy.one_sided ? "+" : "+-";
  if ((summary.count < policy.min_seeds && !borrowed) ||
      result.outcome == stats::Equivalence::kUndecided) {
    check.outcome = Outcome::kInconclusive;
    check.relation = "not shown to be within " + side;
    if (IsGross(summary, policy)) {
      check.outcome = Outcome::kFail;
      check.relation =
          fmt::format("more than {:g} times ", policy.gross_factor) + side;
      check.next = where;
      return check;
    }
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
                      const Policy& policy,
                      const std::optional<KnownSpread>& spread) {
  std::vector<double> percent;
  for (const SeedDifference& seed : window.seeds) {
    percent.push_back(100 * seed.final_window);
  }
  return TestDifferences(
      "final_window", "mean paired loss difference", percent,
      fmt::format("steps {} to {}", window.first_step, window.last_step), where,
      policy, spread);
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

/// How sure the mean of the window is, of these trajectories alone.
void AppendTrajectoryErrors(const compare::Pairing& pairing,
                            const FinalWindow& window, Judgement& judgement) {
  std::vector<double> percent;
  for (int64_t step = window.first_step; step <= window.last_step; ++step) {
    const size_t i = static_cast<size_t>(step) - 1;
    double sum = 0;
    for (const compare::SeedPair& pair : pairing.pairs) {
      const double baseline = pair.baseline->log.steps.loss_nats[i];
      sum +=
          100 * (pair.candidate->log.steps.loss_nats[i] - baseline) / baseline;
    }
    percent.push_back(sum / static_cast<double>(pairing.pairs.size()));
  }
  constexpr size_t kFewest = 8;  // of the bootstrap
  if (percent.size() < kFewest) return;
  // Differences that are equal but for their last bits have no spread.
  const stats::Summary summary = stats::Summarize(percent);
  if (!(summary.sd > 1e-12 * std::fabs(summary.mean))) return;
  const stats::HacError hac = stats::NeweyWestError(percent);
  judgement.measures.push_back(
      {"window_hac_error", hac.standard_error, "%",
       fmt::format("of the mean difference, Newey-West, lag {}: these "
                   "trajectories, not other seeds",
                   hac.lag)});
  const auto bootstrap = stats::StationaryBootstrapMean(percent, {});
  judgement.measures.push_back(
      {"window_bootstrap", bootstrap.standard_error, "%",
       fmt::format("of the mean difference, stationary bootstrap, 95 % "
                   "interval [{:+.4f} %, {:+.4f} %]",
                   bootstrap.lower, bootstrap.upper)});
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
                      fmt::format("mean paired difference of the last {} steps",
                                  window.last_100_steps)});
  measures.push_back({"trajectory_rmse", stats::Mean(rmse), "nats",
                      "root mean square over all steps, mean over seeds"});
  measures.push_back({"max_step_gap", largest->max_gap_nats, "nats",
                      fmt::format("largest single difference: step {} of "
                                  "seed {}",
                                  largest->max_gap_step, largest->seed)});
}

void JudgeFinalWindow(const Evidence& evidence, Judgement& judgement) {
  const compare::Pairing& pairing = *evidence.pairing;
  const Policy& policy = judgement.policy;
  judgement.final_window =
      compare::CompareFinalWindow(pairing, policy.window_share);
  const FinalWindow& window = *judgement.final_window;
  const std::string where = WhereToLook(pairing, window);
  const auto spread = SpreadOfEnsemble(evidence, window, policy);
  judgement.checks.push_back(TestFinalWindow(window, where, policy, spread));
  if (window.held_out_step.has_value()) {
    judgement.checks.push_back(TestHeldOut(window, where, policy));
    Check& held_out = judgement.checks.back();
    // An ensemble says nothing of the spread of held-out losses; one pair
    // within the margin is then no reason to withhold the verdict.
    const double distance =
        policy.one_sided ? *held_out.value : std::fabs(*held_out.value);
    held_out.gates = !(spread.has_value() && window.seeds.size() == 1 &&
                       distance < policy.margin_percent);
  }
  AppendMeasures(window, judgement);
  AppendTrajectoryErrors(pairing, window, judgement);
}

}  // namespace

extern constinit const Level kLevel_l5_final_window = {
    .id = LevelId::l5_final_window,
    .name = "L5",
    .question =
        "is the mean paired loss difference at the end of training within the "
        "margin?",
    .needs = Needs::kSoundRuns,
    .decides = Decides::kBoth,
    .run = &JudgeFinalWindow};

}  // namespace isoloss::gate
