#include "isoloss/gate/foreign_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "isoloss/compare/difference_by_tenth.h"
#include "isoloss/compare/final_window.h"
#include "isoloss/compare/written_digits.h"
#include "isoloss/gate/foreign_relations.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {
namespace {

/// isoloss' own runs of BF16 and FP8 are 0.001 % apart at step 1. Twenty times
/// as much is more than the rounding of such formats explains.
constexpr double kRoundingPercent = 0.02;

/// After this step chance alone parts two runs, so nothing is said.
constexpr int64_t kLastFirstStep = 10;
/// Up to this step chance has had at most one update to act on. Later it may
/// part good runs further than their margin.
constexpr int64_t kLastWithoutChance = 2;

bool IsKnownPair(const compare::SeedPair& pair) {
  const runlog::RunLog& a = pair.baseline->log;
  const runlog::RunLog& b = pair.candidate->log;
  const std::string& weights = a.provenance.initial_weights_digest;
  return !weights.empty() && weights == b.provenance.initial_weights_digest &&
         !a.steps.batch_digest.empty() &&
         a.steps.batch_digest == b.steps.batch_digest;
}

double RootMeanSquare(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// ---- other weights or data -------------------------------------------------

/// Says how far all pairs are apart at the first step, in percent of the loss.
struct FirstGaps {
  std::vector<double> percents;
  size_t worst = 0;        ///< the pair that is furthest apart
  double digits = 0;       ///< what the digits of the logs hide
  double end = 0;          ///< single steps of the final window, rms
  double seeds = 0;        ///< between seeds, of both arms; 0: unknown
  bool any = false;        ///< the first step tells something
  bool by_chance = false;  ///< or chance does
};

/// Returns the spread between seeds of both arms: unpaired losses of a row
/// differ by as much.
double SpreadOfSeeds(const compare::Pairing& pairing, size_t row) {
  constexpr size_t kFewest = 3;  // two may be alike by chance
  if (pairing.pairs.size() < kFewest) return 0;
  double variance = 0;
  for (const auto run :
       {&compare::SeedPair::baseline, &compare::SeedPair::candidate}) {
    std::vector<double> losses;
    for (const compare::SeedPair& pair : pairing.pairs) {
      losses.push_back((pair.*run)->log.steps.loss_nats[row]);
    }
    const stats::Summary summary = stats::Summarize(losses);
    variance += std::pow(100 * summary.sd / summary.mean, 2);
  }
  return std::sqrt(variance);
}

/// Whether the two runs of a seed are about as far apart there as two seeds.
bool IsUnpairedAt(const compare::Pairing& pairing, size_t row, double digits) {
  constexpr double kUnpaired = 0.5;
  const double seeds = SpreadOfSeeds(pairing, row);
  std::vector<double> percents;
  for (const compare::SeedPair& pair : pairing.pairs) {
    percents.push_back(
        compare::PercentDifference(pair.candidate->log.steps.loss_nats[row],
                                   pair.baseline->log.steps.loss_nats[row]));
  }
  return seeds > 0 &&
         stats::Summarize(percents).sd > kUnpaired * seeds + digits;
}

bool IsUnpairedAtMostSteps(const compare::Pairing& pairing, size_t begin,
                           size_t end, double digits) {
  size_t unpaired = 0;
  for (size_t row = begin; row < end; ++row) {
    unpaired += IsUnpairedAt(pairing, row, digits) ? 1 : 0;
  }
  return 2 * unpaired > end - begin;
}

/// Whether the gate has to assume that the runs are pairs, because no digest
/// says so.
bool AreSupposedPairs(const compare::Pairing& pairing) {
  return !pairing.Knows(runlog::Fact::kBatches) && !pairing.pairs.empty() &&
         !std::ranges::all_of(pairing.pairs, &IsKnownPair);
}

FirstGaps FirstGapsOf(const compare::Pairing& pairing) {
  FirstGaps gaps;
  if (!AreSupposedPairs(pairing)) return gaps;
  const auto& step = pairing.pairs[0].baseline->log.steps.step;
  if (step.empty() || step.front() > kLastFirstStep) return gaps;
  std::vector<double> late;
  for (const compare::SeedPair& pair : pairing.pairs) {
    const std::vector<double> percent = PercentsOf(pair);
    if (percent.empty()) return gaps;
    gaps.percents.push_back(percent.front());
    late.push_back(RootMeanSquare(
        std::span(percent).last(std::max<size_t>(1, percent.size() / 5))));
  }
  const auto magnitude = [](double x) { return std::fabs(x); };
  gaps.worst = static_cast<size_t>(
      std::ranges::max_element(gaps.percents, {}, magnitude) -
      gaps.percents.begin());
  gaps.digits = compare::WrittenPercent(pairing);
  gaps.end = RootMeanSquare(late);
  gaps.seeds = SpreadOfSeeds(pairing, 0);
  gaps.by_chance = step.front() > kLastWithoutChance;
  gaps.any =
      std::fabs(gaps.percents[gaps.worst]) > kRoundingPercent + gaps.digits;
  return gaps;
}

/// Says why runs that differ as much at the first step are no pairs. Empty if
/// they may be pairs.
std::string WhyNoPairs(const compare::Pairing& pairing, const FirstGaps& gaps,
                       const Policy& policy) {
  const double worst = std::fabs(gaps.percents[gaps.worst]);
  if (!gaps.by_chance && worst > policy.margin_percent + gaps.digits) {
    return fmt::format("the margin is {:g} %", policy.margin_percent);
  }
  // Runs that begin alike part with time, and those of a coarse recipe stay
  // apart. Only runs that began apart come nearer to each other.
  constexpr double kNearer = 3;
  const double first = RootMeanSquare(gaps.percents);
  if (!gaps.by_chance && first > kNearer * gaps.end + gaps.digits) {
    return fmt::format("single steps of the end are {:.3g} % apart", gaps.end);
  }
  // A recipe shifts all seeds alike; different weights and batches do not.
  // Chance also parts good pairs, but by less at most steps.
  const size_t rows = pairing.pairs[0].baseline->log.steps.step.size();
  if (IsUnpairedAt(pairing, 0, gaps.digits) &&
      (!gaps.by_chance ||
       IsUnpairedAtMostSteps(pairing, 0, rows, gaps.digits))) {
    return fmt::format("two seeds are {:.3g} % apart", gaps.seeds);
  }
  return "";
}

std::string GapText(const compare::Pairing& pairing, const FirstGaps& gaps) {
  const compare::SeedPair& pair = pairing.pairs[gaps.worst];
  const auto& a = pair.baseline->log.steps;
  const auto& b = pair.candidate->log.steps;
  return fmt::format(
      "at step {} the two runs of seed {} are {:+.4g} nats ({:+.3g} %) apart, "
      "where rounding gives some 0.001 %: {}other initial weights, data or "
      "unit",
      a.step.front(), pair.seed, b.loss_nats.front() - a.loss_nats.front(),
      gaps.percents[gaps.worst],
      gaps.by_chance ? "chance in the steps before, or " : "");
}

// ---- other batches later ----------------------------------------------------

/// Equal batches move the losses of both arms up and down together. Unequal
/// batches do so at half of the steps.
struct Moves {
  double together = 0;
  double all = 0;

  /// Whether at most half of the moves, plus one and a half standard
  /// deviations, go together. Moves that follow each other share a value, so
  /// their variance is 11/9 times that of independent moves. Suppose that
  /// losses correlate by 0.6 within pairs, and chance's noise is 0.8 of the
  /// batches' noise. Then 0.7 of the moves go together: 3 standard deviations
  /// above this limit for 120 moves.
  bool AreByChance() const {
    constexpr double kDeviations = 1.5;
    const double deviation = std::sqrt(all / 4 * 11 / 9);
    return together <= all / 2 + kDeviations * deviation;
  }
};

/// Returns the unit of a log's losses: single losses show nothing finer.
double UnitOf(const runlog::RunLog& log) {
  return std::max(2 * log.provenance.origin.loss_half_unit, log.told.loss_step);
}

/// Counts the moves to rows [begin, end) that are large enough to show in both
/// logs of a pair.
Moves MovesOf(const compare::Pairing& pairing, size_t begin, size_t end) {
  constexpr double kShown = 1.5;  // units: rounding turns no such move around
  Moves moves;
  for (const compare::SeedPair& pair : pairing.pairs) {
    const auto& a = pair.baseline->log;
    const auto& b = pair.candidate->log;
    for (size_t row = std::max<size_t>(begin, 1); row < end; ++row) {
      const auto move = [row](const runlog::RunLog& log) {
        return log.steps.loss_nats[row] - log.steps.loss_nats[row - 1];
      };
      const bool shown = std::fabs(move(a)) > kShown * UnitOf(a) &&
                         std::fabs(move(b)) > kShown * UnitOf(b);
      if (!shown) continue;
      moves.all += 1;
      moves.together += (move(a) > 0) == (move(b) > 0) ? 1 : 0;
    }
  }
  return moves;
}

/// A stretch is made of rows [begin, end).
struct Stretch {
  size_t begin = 0;
  size_t end = 0;
  Moves moves;
};

/// Returns the first stretch in which the two runs of a seed move together by
/// chance alone and part as far as two seeds. It has as few tenths as hold
/// enough moves. With fewer than three seeds nobody knows how far seeds part,
/// so only the moves count.
std::optional<Stretch> UnpairedStretch(const compare::Pairing& pairing) {
  constexpr size_t kTenths = 10;
  constexpr double kFewest = 120;
  const size_t rows = pairing.pairs[0].baseline->log.steps.step.size();
  const double digits = compare::WrittenPercent(pairing);
  const bool knows_spread = SpreadOfSeeds(pairing, 0) > 0;
  for (size_t first = 0; first < kTenths; ++first) {
    for (size_t last = first + 1; last <= kTenths; ++last) {
      Stretch stretch{first * rows / kTenths, last * rows / kTenths, {}};
      stretch.moves = MovesOf(pairing, stretch.begin, stretch.end);
      if (stretch.moves.all < kFewest) continue;
      if (stretch.moves.AreByChance() &&
          (!knows_spread || IsUnpairedAtMostSteps(pairing, stretch.begin,
                                                  stretch.end, digits))) {
        return stretch;
      }
      break;
    }
  }
  return std::nullopt;
}

// ---- smoothing --------------------------------------------------------------

bool IsSmoothed(const compare::Run& run) {
  return run.log.told.looks_smoothed ||
         run.log.provenance.origin.values() == runlog::LossValues::kSmoothed;
}

/// Smoothing puts off a difference and makes it smaller. It can't make one
/// that exceeds the margin on one side in every tenth.
bool HasGapThroughout(const compare::Pairing& pairing, const Policy& policy) {
  const auto parts = compare::CompareByTenth(pairing, policy.alpha);
  const auto beyond = [&](double side) {
    return std::ranges::all_of(
        parts.tenths, [&](const compare::PartDifference& part) {
          return side * part.percent.mean > policy.Margin();
        });
  };
  return !policy.InTokens() && (beyond(1) || (!policy.one_sided && beyond(-1)));
}

/// Warns of losses that are larger than the cross entropy of a random guess
/// over any vocabulary.
std::string ScaleWarning(const compare::Pairing& pairing) {
  constexpr double kMostNats = 100;
  for (const compare::Run* run : pairing.All()) {
    const auto& loss = run->log.steps.loss_nats;
    if (loss.empty() || !(loss.front() > kMostNats)) continue;
    return fmt::format(
        "{} begins with a loss of {:.5g}: a perplexity or a sum over tokens? "
        "Margins are of the mean loss in nats.",
        compare::Label(*run), loss.front());
  }
  return "";
}

}  // namespace

bool IsOneArmSmoothed(const compare::Pairing& pairing) {
  size_t baseline = 0;
  size_t candidate = 0;
  for (const compare::SeedPair& pair : pairing.pairs) {
    baseline += IsSmoothed(*pair.baseline) ? 1 : 0;
    candidate += IsSmoothed(*pair.candidate) ? 1 : 0;
  }
  const size_t pairs = pairing.pairs.size();
  return (2 * baseline > pairs) != (2 * candidate > pairs);
}

std::optional<Check> SmoothedCurve(const compare::Pairing& pairing,
                                   const Policy& policy) {
  for (const compare::Run* run : pairing.All()) {
    if (!IsSmoothed(*run)) continue;
    if (!IsOneArmSmoothed(pairing) && HasGapThroughout(pairing, policy)) {
      return std::nullopt;
    }
    return Check{
        .name = "final_window",
        .outcome = Outcome::kInconclusive,
        .quantity = fmt::format(
            "{}: its losses {} smoothed, and a mean of them is one of other "
            "steps",
            compare::Label(*run),
            run->log.told.looks_smoothed ? "move as if they were" : "are"),
        .next = "export the curves without smoothing"};
  }
  return std::nullopt;
}

std::optional<Check> ApartAtFirstStep(const compare::Pairing& pairing,
                                      const Policy& policy) {
  const FirstGaps gaps = FirstGapsOf(pairing);
  if (!gaps.any) return std::nullopt;
  Check check{.name = "first_step", .outcome = Outcome::kInconclusive};
  if (const Relation relation = RelationOf(pairing); !relation.text.empty()) {
    check.quantity = relation.text + ". That is no effect of training";
    check.next = relation.next;
    return check;
  }
  const std::string why = WhyNoPairs(pairing, gaps, policy);
  if (why.empty()) return std::nullopt;
  check.quantity = GapText(pairing, gaps);
  check.evidence = why;
  check.next =
      "train both runs of each seed from equal weights and batches; a paired "
      "difference means nothing without";
  return check;
}

std::optional<Check> OtherBatches(const compare::Pairing& pairing) {
  if (!AreSupposedPairs(pairing)) return std::nullopt;
  const std::optional<Stretch> stretch = UnpairedStretch(pairing);
  if (!stretch) return std::nullopt;
  const auto& step = pairing.pairs[0].baseline->log.steps.step;
  return Check{
      .name = "same_batches",
      .outcome = Outcome::kInconclusive,
      .quantity = fmt::format(
          "in steps {} to {} the two runs of a seed move up or down together "
          "at {:.0f} % of the steps, where runs of unequal batches do so at "
          "50 %",
          step[stretch->begin], step[stretch->end - 1],
          100 * stretch->moves.together / stretch->moves.all),
      .next =
          "give both runs of each seed equal batches at all steps; a "
          "paired difference means nothing without"};
}

std::vector<std::string> CurveWarnings(const compare::Pairing& pairing) {
  std::vector<std::string> warnings;
  const FirstGaps gaps = FirstGapsOf(pairing);
  // If a relation holds, the check names it.
  if (gaps.any && RelationOf(pairing).text.empty()) {
    warnings.push_back(GapText(pairing, gaps) + ".");
  }
  if (std::string text = ScaleWarning(pairing); !text.empty()) {
    warnings.push_back(std::move(text));
  }
  return warnings;
}

}  // namespace isoloss::gate
