#include "isoloss/estimators/claim_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "isoloss/base/error.h"
#include "isoloss/estimators/gap_cell.h"
#include "isoloss/estimators/parameter_factor.h"
#include "isoloss/stats/mean_interval.h"
#include "isoloss/stats/student_t.h"

namespace isoloss::estimators {
namespace {

constexpr double kPercent = 100;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const CellCurves& CellOfName(std::span<const CellCurves> cells,
                             const std::string& name) {
  const auto found = std::ranges::find(cells, name, &CellCurves::name);
  if (found != cells.end()) return *found;
  ThrowError(ErrorKind::kConfig,
             "claim: cell {} has no runs, but a contrast needs them. Train it.",
             name);
}

size_t RunsOfArm(const CellCurves& cell, const std::string& name) {
  const auto found = std::ranges::find(cell.arms, name, &ArmCurves::arm);
  return found == cell.arms.end() ? 0 : found->runs.size();
}

const ArmCurves& ArmOfName(const CellCurves& cell, const std::string& name) {
  if (RunsOfArm(cell, name) > 0) {
    return *std::ranges::find(cell.arms, name, &ArmCurves::arm);
  }
  ThrowError(ErrorKind::kConfig,
             "claim: arm {} of cell {} has no runs, but a contrast needs them. "
             "Train it.",
             name, cell.name);
}

/// Returns an arm's losses at a share of the run, by seed. A loss is NaN if
/// the run diverged before that step.
std::map<int64_t, double> LossesAt(const CellCurves& cell,
                                   const std::string& arm, double at) {
  const int64_t step = std::llround(at * static_cast<double>(cell.steps));
  std::map<int64_t, double> losses;
  for (const RunCurve& run : ArmOfName(cell, arm).runs) {
    const auto found =
        std::ranges::find(run.losses, step, &std::pair<int64_t, double>::first);
    if (found == run.losses.end() && !run.diverged) {
      ThrowError(ErrorKind::kConfig,
                 "claim: arm {} of cell {}, seed {}, has no held-out loss at "
                 "step {}, but a contrast reads it. Set log.eval_every to a "
                 "divisor of it.",
                 arm, cell.name, run.seed, step);
    }
    losses[run.seed] = found == run.losses.end()
                           ? std::numeric_limits<double>::quiet_NaN()
                           : found->second;
  }
  return losses;
}

/// A gap is in percent of the reference's loss. The keys are seeds.
using Gaps = std::map<int64_t, double>;

Gaps GapsOf(const CellCurves& cell, const std::string& arm,
            const std::string& reference, double at) {
  const auto of_arm = LossesAt(cell, arm, at);
  const auto of_reference = LossesAt(cell, reference, at);
  Gaps gaps;
  for (const auto& entry : of_arm) {
    const auto other = of_reference.find(entry.first);
    if (other == of_reference.end()) continue;
    gaps[entry.first] =
        kPercent * (entry.second - other->second) / other->second;
  }
  return gaps;
}

/// Subtracts the gaps of seeds that both have.
Gaps Minus(const Gaps& a, const Gaps& b) {
  Gaps result;
  for (const auto& entry : a) {
    const auto other = b.find(entry.first);
    if (other != b.end()) result[entry.first] = entry.second - other->second;
  }
  return result;
}

Gaps ValuesOf(const Contrast& contrast, std::span<const CellCurves> cells) {
  const CellCurves& cell = CellOfName(cells, contrast.cell);
  Gaps gaps = GapsOf(cell, contrast.arm, contrast.reference, contrast.at);
  if (contrast.measure == Measure::kGapChange) {
    return Minus(gaps,
                 GapsOf(cell, contrast.arm, contrast.reference, contrast.from));
  }
  if (contrast.measure == Measure::kInteraction) {
    return Minus(
        gaps, GapsOf(CellOfName(cells, contrast.other_cell), contrast.other_arm,
                     contrast.other_reference, contrast.at));
  }
  return gaps;
}

void JudgeGaps(std::span<const CellCurves> cells, double alpha,
               ContrastResult& result) {
  const Gaps gaps = ValuesOf(result.contrast, cells);
  std::vector<double> values;
  for (const auto& entry : gaps) {
    if (std::isfinite(entry.second)) values.push_back(entry.second);
  }
  result.seeds = values.size();
  const stats::Summary summary = stats::Summarize(values);
  const stats::MeanInterval interval =
      stats::IntervalOfMean(summary, alpha / 2);
  result.estimate = interval.mean;
  result.lower = interval.lower;
  result.upper = interval.upper;
  if (values.size() < gaps.size()) {
    result.note = fmt::format(
        "{} of {} seeds have a loss that is not finite, and are left out, so "
        "that nothing is decided by it",
        gaps.size() - values.size(), gaps.size());
    return;
  }
  if (values.size() < 2) {
    result.note = "Fewer than two seeds have all runs";
    return;
  }
  result.spread = summary.sd;
  result.verdict =
      VerdictOfInterval(result.contrast, result.lower, result.upper);
}

int64_t DivergedRuns(const ArmCurves& arm) {
  return std::ranges::count(arm.runs, true, &RunCurve::diverged);
}

void JudgeDivergence(std::span<const CellCurves> cells, double alpha,
                     ContrastResult& result) {
  const Contrast& contrast = result.contrast;
  const CellCurves& cell = CellOfName(cells, contrast.cell);
  const ArmCurves& arm = ArmOfName(cell, contrast.arm);
  const ArmCurves& reference = ArmOfName(cell, contrast.reference);
  result.counts = {
      .diverged = DivergedRuns(arm),
      .runs = static_cast<int64_t>(arm.runs.size()),
      .reference_diverged = DivergedRuns(reference),
      .reference_runs = static_cast<int64_t>(reference.runs.size())};
  result.seeds = std::min(arm.runs.size(), reference.runs.size());
  const RateDifference rates = JudgeRates(contrast, result.counts, alpha);
  result.estimate = rates.estimate;
  result.lower = rates.lower;
  result.upper = rates.upper;
  result.p = rates.p;
  result.verdict = rates.verdict;
}

/// Returns a cell's gaps in nats, and the reference's losses.
estimators::GapCell SizeOf(const CellCurves& cell, const Contrast& contrast,
                           bool& finite) {
  const auto of_arm = LossesAt(cell, contrast.arm, contrast.at);
  const auto of_reference = LossesAt(cell, contrast.reference, contrast.at);
  estimators::GapCell size{.name = cell.name,
                           .size = {cell.parameters, cell.tokens},
                           .gaps = {},
                           .baseline = {}};
  for (const auto& entry : of_arm) {
    const auto other = of_reference.find(entry.first);
    if (other == of_reference.end()) continue;
    finite = finite && std::isfinite(entry.second - other->second);
    size.gaps.push_back(entry.second - other->second);
    size.baseline.push_back(other->second);
  }
  return size;
}

/// Counts the runs that a contrast needs, but has not been given.
size_t MissingRuns(const Contrast& contrast,
                   std::span<const CellCurves> cells) {
  size_t missing = 0;
  for (const CellCurves& cell : cells) {
    const size_t planned = std::max(cell.seeds, size_t{1});
    for (const std::string& arm : ArmsIn(contrast, cell.name)) {
      missing += planned - std::min(planned, RunsOfArm(cell, arm));
    }
  }
  return missing;
}

/// Gives no estimate while a size has no runs, which JudgeClaim reports.
void JudgeFactor(std::span<const CellCurves> cells, double alpha,
                 ContrastResult& result) {
  result.lower = 0;
  result.upper = kInfinity;
  result.estimate = std::numeric_limits<double>::quiet_NaN();
  std::vector<estimators::GapCell> sizes;
  bool finite = true;
  for (const CellCurves& cell : cells) {
    if (RunsOfArm(cell, result.contrast.arm) == 0 ||
        RunsOfArm(cell, result.contrast.reference) == 0) {
      return;
    }
    sizes.push_back(SizeOf(cell, result.contrast, finite));
    result.seeds = sizes.size() == 1
                       ? sizes.back().gaps.size()
                       : std::min(result.seeds, sizes.back().gaps.size());
  }
  if (result.seeds < 2 || !finite) {
    result.note = finite ? "Fewer than two seeds of a size have all runs"
                         : "A loss is not finite";
    return;
  }
  estimators::FactorOptions options;
  options.confidence = 1 - alpha;
  // Ten draws lie beyond each end, so that no single draw is an end.
  options.resamples =
      std::max(size_t{1999}, static_cast<size_t>(std::ceil(20 / alpha)));
  const auto factor = estimators::ParameterFactor(sizes, options);
  if (!factor) {
    result.note =
        "The losses of these sizes determine no law: it takes 6 sizes with 3 "
        "numbers of parameters and of tokens, and losses that fall with both";
    return;
  }
  result.estimate = factor->estimate;
  result.lower = factor->lower;
  result.upper = factor->upper;
  // The spread of normal numbers whose t interval would be as wide.
  const auto n = static_cast<double>(result.seeds);
  result.spread = (factor->upper - factor->lower) / 2 * std::sqrt(n) /
                  stats::StudentTQuantile(1 - alpha / 2, n - 1);
  result.verdict =
      VerdictOfInterval(result.contrast, result.lower, result.upper);
}

/// Considers only the claim's own contrasts. One that lacks runs or losses may
/// turn out to be contradicted, so without it nothing milder is decided.
ClaimVerdict VerdictOf(std::span<const ContrastResult> contrasts) {
  const auto any = [&](const auto& is) {
    return std::ranges::any_of(contrasts, [&](const ContrastResult& result) {
      return result.contrast.role == ContrastRole::kClaim && is(result);
    });
  };
  const auto has = [&](ClaimVerdict verdict) {
    return any([verdict](const ContrastResult& result) {
      return result.verdict == verdict;
    });
  };
  if (has(ClaimVerdict::kContradicted)) return ClaimVerdict::kContradicted;
  if (any([](const ContrastResult& result) { return !result.note.empty(); })) {
    return ClaimVerdict::kUndecided;
  }
  for (const ClaimVerdict verdict :
       {ClaimVerdict::kAbsent, ClaimVerdict::kTooSmall,
        ClaimVerdict::kUndecided}) {
    if (has(verdict)) return verdict;
  }
  return ClaimVerdict::kReproduced;
}

/// Says why no control shows that these runs would have seen a bad recipe.
/// Returns "" if every control shows it, or if the verdict needs none.
std::string BlindnessOf(const ClaimResult& result) {
  const bool reproduced = result.verdict == ClaimVerdict::kReproduced;
  if (!reproduced && result.verdict != ClaimVerdict::kAbsent &&
      result.verdict != ClaimVerdict::kTooSmall) {
    return {};
  }
  for (const ContrastResult& control : result.contrasts) {
    if (control.contrast.role == ContrastRole::kControl &&
        !IsSeen(control.verdict)) {
      return fmt::format(
          "Not {}: these runs would not have seen a bad recipe (control {} "
          "does not lie {})",
          WordOf(kClaimVerdicts, result.verdict), control.contrast.name,
          ClaimedText(control.contrast));
    }
  }
  const bool guarded = std::ranges::all_of(
      result.claim.contrasts, [&result](const Contrast& contrast) {
        return result.claim.IsGuarded(contrast);
      });
  if (guarded || !reproduced) return {};
  return "Not reproduced: no control shows that these runs would have seen a "
         "bad recipe";
}

/// Returns the seeds that decide all undecided contrasts of the claim. They are
/// not known while one of these contrasts lacks runs or losses.
std::optional<size_t> SeedsToDecide(const ClaimResult& result) {
  size_t most = 0;
  for (const ContrastResult& contrast : result.contrasts) {
    if (contrast.contrast.role != ContrastRole::kClaim ||
        contrast.verdict != ClaimVerdict::kUndecided) {
      continue;
    }
    if (!contrast.seeds_needed || !contrast.note.empty()) return std::nullopt;
    most = std::max(most, *contrast.seeds_needed);
  }
  if (most == 0) return std::nullopt;  // Only controls leave it undecided.
  return most;
}

ContrastResult JudgeContrast(const Contrast& contrast,
                             std::span<const CellCurves> cells, double alpha) {
  ContrastResult result{.contrast = contrast};
  switch (contrast.measure) {
    case Measure::kDivergence:
      JudgeDivergence(cells, alpha, result);
      break;
    case Measure::kParameterFactor:
      JudgeFactor(cells, alpha, result);
      break;
    default:
      JudgeGaps(cells, alpha, result);
  }
  const bool measured = result.note.empty();
  if (const size_t missing = MissingRuns(contrast, cells); missing > 0) {
    result.verdict = ClaimVerdict::kUndecided;
    result.note = fmt::format(
        "{} of its runs are missing, so that nothing is decided by it: a claim "
        "that is judged again and again ends at a lucky seed",
        missing);
  }
  if (!measured) return result;
  result.power = PowerOf(contrast, result.seeds, result.spread, alpha);
  result.seeds_needed = SeedsNeeded(contrast, result.spread, alpha);
  return result;
}

}  // namespace

ClaimResult JudgeClaim(const Claim& claim, std::span<const CellCurves> cells) {
  ClaimResult result{.claim = claim};
  const double alpha = claim.Error();
  result.confidence = 1 - alpha;
  for (const Contrast& contrast : claim.contrasts) {
    result.contrasts.push_back(JudgeContrast(contrast, cells, alpha));
  }
  result.verdict = VerdictOf(result.contrasts);
  result.note = BlindnessOf(result);
  if (!result.note.empty()) result.verdict = ClaimVerdict::kUndecided;
  if (result.verdict == ClaimVerdict::kUndecided) {
    result.seeds_needed = SeedsToDecide(result);
  }
  return result;
}

}  // namespace isoloss::estimators
