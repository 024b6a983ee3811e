#include "isoloss/gate/precision_measures.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/final_window.h"
#include "isoloss/gate/check_titles.h"
#include "isoloss/gate/pairs_needed.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/stats/autocovariance.h"
#include "isoloss/stats/bootstrap.h"
#include "isoloss/stats/power.h"

namespace isoloss::gate {
namespace {

/// Returns how sensitive a check of L5 is. Empty if there is no spread, as
/// with a single pair.
std::optional<Sensitivity> SensitivityOf(
    const Check& check, const stats::EquivalenceOptions& options,
    double resolution) {
  // Check `trajectory` has limits of its own, which are not the margin.
  if (!check.pairs || check.name == "trajectory" || check.pairs->count < 2 ||
      !std::isfinite(check.pairs->sd)) {
    return std::nullopt;
  }
  const auto& [count, mean, sd] = *check.pairs;
  const double sd_limit = stats::UpperLimitOfSd(sd, count, kSpreadConfidence);
  // The digits hide a part of the difference, so the interval is wider by as
  // much. A test then passes as if the margin were narrower, and fails as if
  // it were wider.
  stats::EquivalenceOptions passing = options;
  stats::EquivalenceOptions failing = options;
  passing.margin -= resolution;
  failing.margin += resolution;
  return Sensitivity{
      .check = check.name,
      .title = TitleOf(check.name),
      .pairs = count,
      .sd = sd,
      .sd_limit = sd_limit,
      .alpha = options.alpha,
      .margin = options.margin,
      .power_at_zero =
          passing.margin > 0 ? ChanceOfPass(sd_limit, count, passing) : 0,
      .detectable = stats::DetectableDifference(sd_limit, count, failing),
      .power = options.power};
}

/// Appends the standard errors of the window's mean, from these trajectories
/// alone.
void AppendTrajectoryErrors(const compare::Pairing& pairing,
                            const compare::FinalWindow& window,
                            std::vector<Measure>& measures) {
  std::vector<double> percent;
  const auto& step = pairing.pairs[0].baseline->log.steps.step;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] < window.first_step) continue;
    double sum = 0;
    for (const compare::SeedPair& pair : pairing.pairs) {
      sum += compare::PercentDifference(pair.candidate->log.steps.loss_nats[i],
                                        pair.baseline->log.steps.loss_nats[i]);
    }
    percent.push_back(sum / static_cast<double>(pairing.pairs.size()));
  }
  constexpr size_t kFewest = 8;  // of the bootstrap
  if (percent.size() < kFewest) return;
  // Differences that are equal but for their last bits have no spread.
  const stats::Summary summary = stats::Summarize(percent);
  if (!(summary.sd > 1e-12 * std::fabs(summary.mean))) return;
  const stats::HacError hac = stats::NeweyWestError(percent);
  measures.push_back(
      {"window_hac_error", hac.standard_error, "%",
       fmt::format("of the mean difference, Newey-West, lag {}: these "
                   "trajectories, not other seeds",
                   hac.lag)});
  const auto bootstrap = stats::StationaryBootstrapMean(percent, {});
  measures.push_back(
      {"window_bootstrap", bootstrap.standard_error, "%",
       fmt::format("of the mean difference, stationary bootstrap, 95 % "
                   "interval [{:+.4f} %, {:+.4f} %]",
                   bootstrap.lower, bootstrap.upper)});
}

/// Returns figures on which other projects gate, for comparison.
std::vector<Measure> WindowMeasures(const compare::FinalWindow& window) {
  std::vector<double> window_nats;
  std::vector<double> last_100;
  std::vector<double> rmse;
  const compare::SeedDifference* largest = &window.seeds[0];
  for (const compare::SeedDifference& seed : window.seeds) {
    window_nats.push_back(seed.final_window_nats);
    last_100.push_back(seed.last_100_nats);
    rmse.push_back(seed.trajectory_rmse_nats);
    if (seed.max_gap_nats > largest->max_gap_nats) largest = &seed;
  }
  std::vector<Measure> measures;
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
  return measures;
}

}  // namespace

PrecisionMeasures MeasurePrecision(const compare::Pairing& pairing,
                                   const LevelFindings& found,
                                   const compare::TokenSlope& slope,
                                   const stats::EquivalenceOptions& options,
                                   double resolution) {
  PrecisionMeasures measures{
      .trained = compare::ScaleOf(pairing.All().front()->log),
      .alpha = options.alpha,
      .slope = slope,
      .tokens =
          compare::TokensOf(found.final_window->Gaps(), slope, options.alpha),
      .along = compare::CompareByTenth(pairing, options.alpha)};
  for (const Check& check : found.checks) {
    const auto sensitivity = SensitivityOf(check, options, resolution);
    if (sensitivity) measures.sensitivity.push_back(*sensitivity);
  }
  return measures;
}

std::vector<Measure> MeasureWindow(const compare::Pairing& pairing,
                                   const compare::FinalWindow& window) {
  std::vector<Measure> measures = WindowMeasures(window);
  AppendTrajectoryErrors(pairing, window, measures);
  return measures;
}

}  // namespace isoloss::gate
