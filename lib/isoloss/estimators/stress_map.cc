#include "isoloss/estimators/stress_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "isoloss/base/error.h"
#include "isoloss/stats/binomial_interval.h"
#include "isoloss/stats/fisher_exact.h"
#include "isoloss/stats/mean_interval.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"

namespace isoloss::estimators {
namespace {

const ArmRuns& StressRunsOfArm(const StressedRuns& runs,
                               const std::string& arm) {
  const auto found = std::ranges::find(runs.arms, arm, &ArmRuns::arm);
  if (found != runs.arms.end()) return *found;
  ThrowError(ErrorKind::kConfig,
             "stress: {} has no runs of arm {}, but all modes must have the "
             "same arms.",
             runs.mode, arm);
}

int64_t CountDiverged(const ArmRuns& arm) {
  return std::ranges::count(arm.runs, true, &StressRun::diverged);
}

/// Subtracts the losses of `b` from those of `a` on the seeds with which both
/// ended.
std::vector<double> PairedDifferences(const ArmRuns& a, const ArmRuns& b) {
  std::map<int64_t, double> others;
  for (const StressRun& run : b.runs) {
    if (run.loss && !run.diverged) others[run.seed] = *run.loss;
  }
  std::vector<double> differences;
  for (const StressRun& run : a.runs) {
    const auto other = others.find(run.seed);
    if (run.loss && !run.diverged && other != others.end()) {
      differences.push_back(*run.loss - other->second);
    }
  }
  return differences;
}

/// Returns the one-sided p-value for a mean above 0.
double PairedTTest(const std::vector<double>& differences) {
  const stats::Summary summary = stats::Summarize(differences);
  if (summary.count < 2) return 1;
  // Equal differences of a few seeds are an accident of rounding.
  if (summary.sd == 0) return 1;
  const auto count = static_cast<double>(summary.count);
  return stats::StudentTUpperTail(
      summary.mean / (summary.sd / std::sqrt(count)), count - 1);
}

StressResult ResultOf(const StressedRuns& runs, const std::string& arm,
                      const std::string& baseline,
                      const std::string& reference) {
  const ArmRuns& of_arm = StressRunsOfArm(runs, arm);
  const ArmRuns& of_reference = StressRunsOfArm(runs, reference);
  StressResult result{.mode = runs.mode, .arm = arm};
  result.seeds = static_cast<int64_t>(of_arm.runs.size());
  result.diverged = CountDiverged(of_arm);
  if (result.seeds == 0) return result;
  const stats::BinomialInterval rate =
      stats::ClopperPearson(result.diverged, result.seeds, kStressConfidence);
  result.diverged_lower = rate.lower;
  result.diverged_upper = rate.upper;
  if (arm == baseline) return result;
  const std::vector<double> gaps =
      PairedDifferences(of_arm, StressRunsOfArm(runs, baseline));
  result.gap_seeds = static_cast<int64_t>(gaps.size());
  if (gaps.size() >= 2) {
    const stats::MeanInterval interval = stats::IntervalOfMean(
        stats::Summarize(gaps), (1 - kStressConfidence) / 2);
    result.gap = interval.mean;
    result.gap_lower = interval.lower;
    result.gap_upper = interval.upper;
  }
  if (arm != reference) {
    result.p_diverges = stats::FisherExactGreater(
        result.diverged, result.seeds, CountDiverged(of_reference),
        static_cast<int64_t>(of_reference.runs.size()));
    result.p_worse = PairedTTest(PairedDifferences(of_arm, of_reference));
  }
  return result;
}

Separation SeparationOf(const StressMap& map, const std::string& arm,
                        size_t bad_arms) {
  Separation best{.arm = arm, .mode = {}, .by = {}};
  double tests = 0;
  for (const StressResult& result : map.results) {
    if (result.arm != arm) continue;
    tests += 2;
    for (const auto& [by, p] : {std::pair("divergence", result.p_diverges),
                                std::pair("loss", result.p_worse)}) {
      if (!(p < best.p)) continue;
      best.p = p;
      best.mode = result.mode;
      best.by = by;
    }
  }
  best.p = std::min(1.0, best.p * tests * static_cast<double>(bad_arms));
  best.separated = best.p < kSeparates;
  return best;
}

}  // namespace

size_t StressMap::ArmIndex(const std::string& arm) const {
  return static_cast<size_t>(std::ranges::find(arms, arm) - arms.begin());
}

bool StressMap::SeparatesAny() const {
  return std::ranges::any_of(separations, &Separation::separated);
}

StressMap MakeStressMap(const std::vector<StressedRuns>& runs,
                        const std::string& baseline,
                        const std::string& reference,
                        const std::vector<std::string>& known_bad) {
  StressMap map{.baseline = baseline,
                .reference = reference,
                .modes = {},
                .arms = {},
                .results = {},
                .separations = {}};
  if (runs.empty()) {
    ThrowError(ErrorKind::kConfig,
               "stress: no mode has runs. Train some first.");
  }
  for (const ArmRuns& arm : runs.front().arms) {
    map.arms.push_back(arm.arm);
  }
  for (const StressedRuns& of_mode : runs) {
    map.modes.push_back(of_mode.mode);
    for (const std::string& arm : map.arms) {
      map.results.push_back(ResultOf(of_mode, arm, baseline, reference));
    }
  }
  for (size_t mode = 0; mode < map.modes.size(); ++mode) {
    const StressResult& result = map.At(mode, map.ArmIndex(baseline));
    if (2 * result.diverged <= result.seeds) continue;
    map.notes.push_back(fmt::format(
        "In mode {} most runs of {} diverged, too, so that it says little of "
        "the other arms.",
        result.mode, baseline));
  }
  for (const std::string& arm : known_bad) {
    map.separations.push_back(SeparationOf(map, arm, known_bad.size()));
  }
  return map;
}

}  // namespace isoloss::estimators
