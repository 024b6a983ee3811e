#include "isoloss/gate/foreign_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <span>
#include <utility>

#include "isoloss/base/named.h"
#include "isoloss/compare/difference_by_tenth.h"
#include "isoloss/compare/final_window.h"
#include "isoloss/compare/written_digits.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {
namespace {

/// isoloss' own runs of BF16 and FP8 are 0.001 % apart at step 1. Twenty times
/// as much is more than the rounding of such formats.
constexpr double kRoundingPercent = 0.02;

/// Later than this chance alone parts two runs: nothing is said.
constexpr int64_t kLastFirstStep = 10;
/// Up to this one chance has had no update to act on, or one. Later it may part
/// good runs further than their margin.
constexpr int64_t kLastWithoutChance = 2;

bool IsKnownPair(const compare::SeedPair& pair) {
  const runlog::RunLog& a = pair.baseline->log;
  const runlog::RunLog& b = pair.candidate->log;
  const std::string& weights = a.provenance.initial_weights_digest;
  return !weights.empty() && weights == b.provenance.initial_weights_digest &&
         !a.steps.batch_digest.empty() &&
         a.steps.batch_digest == b.steps.batch_digest;
}

std::vector<double> PercentsOf(const compare::SeedPair& pair) {
  const auto& a = pair.baseline->log.steps.loss_nats;
  const auto& b = pair.candidate->log.steps.loss_nats;
  std::vector<double> percent;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    percent.push_back(compare::PercentDifference(b[i], a[i]));
  }
  return percent;
}

double RootMeanSquare(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// ---- another unit ----------------------------------------------------------

/// "1/ln 2, bits in place of nats"; "" of a factor that no unit explains.
std::string UnitText(double factor) {
  constexpr Named<double> kUnits[] = {
      {"1/ln 2, so that one is in bits and one in nats", std::numbers::log2e},
      {"ln 2, so that one is in nats and one in bits", std::numbers::ln2},
      {"1/ln 10, as of decimal logarithms", std::numbers::log10e},
      {"ln 10, as of decimal logarithms", std::numbers::ln10},
  };
  constexpr double kNear = 0.005;
  const auto is_near = [](double value, double other) {
    return std::fabs(value / other - 1) < kNear;
  };
  for (const Named<double>& unit : kUnits) {
    if (is_near(factor, unit.value)) return std::string(unit.name);
  }
  const double whole = std::round(std::max(factor, 1 / factor));
  // Larger whole numbers are so dense that any factor is near one of them.
  constexpr double kLargest = 64;
  const double power = std::exp2(std::round(std::log2(whole)));
  const double divisor = whole > kLargest ? power : whole;
  if (whole < 2 || !is_near(std::max(factor, 1 / factor), divisor)) return "";
  return fmt::format(
      "{}{:.0f}, as of a sum in place of a mean over {}",
      factor < 1 ? "1/" : "", divisor,
      divisor > kLargest ? "tokens or sequences" : "micro-batches or ranks");
}

std::vector<double> GapsOf(const compare::SeedPair& pair) {
  std::vector<double> gaps;
  std::ranges::transform(pair.candidate->log.steps.loss_nats,
                         pair.baseline->log.steps.loss_nats,
                         std::back_inserter(gaps), std::minus<>());
  return gaps;
}

/// What holds between the losses of two arms at every step, and no training
/// does; no text if nothing does.
struct Relation {
  std::string text;
  std::string next;
};

/// What is constant from the first step on is no effect of training, in which
/// runs part little by little.
Relation ConstantRelation(const compare::Pairing& pairing) {
  constexpr double kLeastShift = 5;  // percent of the loss: no recipe begins so
  constexpr double kConstant = 0.05;  // scatter, of what is constant
  double factor = 0;
  double offset = 0;
  double factor_scatter = 0;
  double offset_scatter = 0;
  for (const compare::SeedPair& pair : pairing.pairs) {
    const auto times = stats::Summarize(PercentsOf(pair));
    const auto more = stats::Summarize(GapsOf(pair));
    if (!(std::fabs(times.mean) > kLeastShift)) return {};
    const auto pairs = static_cast<double>(pairing.pairs.size());
    factor += (1 + times.mean / 100) / pairs;
    offset += more.mean / pairs;
    factor_scatter = std::max(factor_scatter, times.sd / std::fabs(times.mean));
    offset_scatter = std::max(offset_scatter, more.sd / std::fabs(more.mean));
  }
  // Where losses hardly fall the two are alike.
  if (factor_scatter < kConstant && factor_scatter <= 2 * offset_scatter) {
    const std::string unit = UnitText(factor);
    return {fmt::format("each loss of {} is {:.5g} times that of {}, from the "
                        "first step on{}",
                        pairing.candidate_arm, factor, pairing.baseline_arm,
                        unit.empty() ? "" : ": " + unit),
            "log the losses of both arms in one unit"};
  }
  if (!(offset_scatter < kConstant)) return {};
  return {fmt::format("each loss of {} is {:.5g} {} than that of {}, from the "
                      "first step on, as if a term were added to it",
                      pairing.candidate_arm, std::fabs(offset),
                      offset > 0 ? "larger" : "smaller", pairing.baseline_arm),
          "log the losses of both arms with the same terms"};
}

/// Median of |percent| over all pairs and steps where row i of the candidate
/// stands beside row i + shift of the baseline.
double MedianGap(const compare::Pairing& pairing, std::ptrdiff_t shift) {
  std::vector<double> gaps;
  for (const compare::SeedPair& pair : pairing.pairs) {
    const auto& a = pair.baseline->log.steps.loss_nats;
    const auto& b = pair.candidate->log.steps.loss_nats;
    for (std::ptrdiff_t i = 0; i < std::ssize(b); ++i) {
      const std::ptrdiff_t at = i + shift;
      if (at < 0 || at >= std::ssize(a)) continue;
      const double gap = compare::PercentDifference(b[static_cast<size_t>(i)],
                                                    a[static_cast<size_t>(at)]);
      if (std::isfinite(gap)) gaps.push_back(std::fabs(gap));
    }
  }
  return gaps.empty() ? std::numeric_limits<double>::infinity()
                      : MedianOf(std::move(gaps));
}

/// Logs that count the same steps from different numbers.
Relation ShiftRelation(const compare::Pairing& pairing) {
  constexpr double kNearer = 3;
  const double here = MedianGap(pairing, 0);
  for (const std::ptrdiff_t shift : {1, -1}) {
    if (!(kNearer * MedianGap(pairing, shift) < here)) continue;
    return {fmt::format("the losses of {} are those that {} has one row {}: "
                        "the two logs count steps differently",
                        pairing.candidate_arm, pairing.baseline_arm,
                        shift > 0 ? "later" : "earlier"),
            "number the steps of both logs from the same one"};
  }
  return {};
}

/// Perplexities beside losses.
Relation PowerRelation(const compare::Pairing& pairing) {
  constexpr double kNear = 0.02;  // of the loss
  const auto is_power = [&](auto of, auto exponent, double per_unit) {
    return std::ranges::all_of(
        pairing.pairs, [&](const compare::SeedPair& pair) {
          const auto& high = (pair.*of)->log.steps.loss_nats;
          const auto& low = (pair.*exponent)->log.steps.loss_nats;
          for (size_t i = 0; i < std::min(high.size(), low.size()); ++i) {
            const double logarithm = std::log(high[i]) / per_unit;
            if (!(std::fabs(logarithm - low[i]) < kNear * low[i])) return false;
          }
          return true;
        });
  };
  const auto a = &compare::SeedPair::baseline;
  const auto b = &compare::SeedPair::candidate;
  for (const auto& [base, per_unit] :
       {std::pair{"e", 1.0}, std::pair{"2", std::numbers::ln2}}) {
    for (const bool candidate : {true, false}) {
      if (!is_power(candidate ? b : a, candidate ? a : b, per_unit)) continue;
      return {
          fmt::format("each loss of {} is {} to the power of that of {}: "
                      "one is a perplexity",
                      candidate ? pairing.candidate_arm : pairing.baseline_arm,
                      base,
                      candidate ? pairing.baseline_arm : pairing.candidate_arm),
          "log the loss of both arms, not its power"};
    }
  }
  return {};
}

Relation RelationOf(const compare::Pairing& pairing) {
  for (const auto find : {&ShiftRelation, &PowerRelation, &ConstantRelation}) {
    Relation relation = find(pairing);
    if (!relation.text.empty()) return relation;
  }
  return {};
}

// ---- other weights or data -------------------------------------------------

/// What the first step of all pairs shows, in percent of the loss.
struct FirstGaps {
  std::vector<double> percents;
  size_t worst = 0;        ///< the pair that is furthest apart
  double digits = 0;       ///< what the digits of the logs hide
  double end = 0;          ///< single steps of the final window, rms
  double seeds = 0;        ///< between seeds, of both arms; 0: unknown
  bool any = false;        ///< the first step tells something
  bool by_chance = false;  ///< or chance does
};

/// Unpaired losses of a row differ by the spread between seeds of both arms.
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

bool IsUnpairedAtMostSteps(const compare::Pairing& pairing, double digits) {
  const size_t rows = pairing.pairs[0].baseline->log.steps.step.size();
  size_t unpaired = 0;
  for (size_t row = 0; row < rows; ++row) {
    unpaired += IsUnpairedAt(pairing, row, digits) ? 1 : 0;
  }
  return 2 * unpaired > rows;
}

FirstGaps FirstGapsOf(const compare::Pairing& pairing) {
  FirstGaps gaps;
  if (!pairing.IsForeign() || pairing.pairs.empty() ||
      std::ranges::all_of(pairing.pairs, &IsKnownPair)) {
    return gaps;
  }
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

/// Why runs that are so far apart at the first step are no pairs; "" if they
/// may be.
std::string WhyNoPairs(const compare::Pairing& pairing, const FirstGaps& gaps,
                       const Policy& policy) {
  const double worst = std::fabs(gaps.percents[gaps.worst]);
  if (!gaps.by_chance && worst > policy.margin_percent + gaps.digits) {
    return fmt::format("the margin is {:g} %", policy.margin_percent);
  }
  // Runs that begin alike part with time, and those of a coarse recipe stay
  // apart. Only those that began apart come nearer.
  constexpr double kNearer = 3;
  const double first = RootMeanSquare(gaps.percents);
  if (!gaps.by_chance && first > kNearer * gaps.end + gaps.digits) {
    return fmt::format("single steps of the end are {:.3g} % apart", gaps.end);
  }
  // A recipe shifts all seeds alike, other weights and batches do not. Chance
  // parts good pairs, but from most steps on by less than that.
  if (IsUnpairedAt(pairing, 0, gaps.digits) &&
      (!gaps.by_chance || IsUnpairedAtMostSteps(pairing, gaps.digits))) {
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

// ---- smoothing --------------------------------------------------------------

bool IsSmoothed(const compare::Run& run) {
  return run.log.told.looks_smoothed ||
         run.log.provenance.origin.values() == runlog::LossValues::kSmoothed;
}

/// Smoothing puts off a difference and makes it smaller. It makes
/// none that is beyond the margin on one side in each tenth, from the first on.
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

// ---- single steps -----------------------------------------------------------

/// Median move of the paired difference from step to step in each tenth, and
/// what the digits hide; empty of fewer than 40 steps.
std::vector<double> ScatterByTenth(const compare::Pairing& pairing) {
  constexpr size_t kTenths = 10;
  constexpr size_t kFewest = 4;  // steps of a tenth
  std::vector<std::vector<double>> moves(kTenths);
  for (const compare::SeedPair& pair : pairing.pairs) {
    const std::vector<double> percent = PercentsOf(pair);
    if (percent.size() < kFewest * kTenths) return {};
    for (size_t i = 1; i < percent.size(); ++i) {
      const double move = std::fabs(percent[i] - percent[i - 1]);
      if (std::isfinite(move)) {
        moves[i * kTenths / percent.size()].push_back(move);
      }
    }
  }
  const double digits = compare::WrittenPercent(pairing);
  std::vector<double> scatter;
  for (std::vector<double>& of : moves) {
    if (of.empty()) return {};
    scatter.push_back(MedianOf(std::move(of)) + digits);
  }
  return scatter;
}

/// Other batches in a stretch of the training: there single steps part more
/// than before it and after it. Chance grows and shrinks, but not in leaps.
std::string ScatterWarning(const compare::Pairing& pairing) {
  constexpr double kLeap = 5;
  const std::vector<double> scatter = ScatterByTenth(pairing);
  // A stretch may begin and end within a tenth, so that one lies between.
  const auto leaps = [&](size_t low, size_t beyond, size_t high) {
    return scatter[high] > kLeap * scatter[low] ||
           scatter[high] > kLeap * scatter[beyond];
  };
  // The first tenth is that in which runs begin to part.
  for (size_t first = 2; first < scatter.size(); ++first) {
    if (!leaps(first - 1, std::max<size_t>(first - 2, 1), first)) continue;
    for (size_t end = first + 1; end < scatter.size(); ++end) {
      if (!leaps(end, std::min(end + 1, scatter.size() - 1), end - 1)) continue;
      const auto& step = pairing.pairs[0].baseline->log.steps.step;
      const size_t tenth = step.size() / scatter.size();
      return fmt::format(
          "single steps of the pairs part more than {:g} times as far in the "
          "middle, some steps between {} and {}, as before and after: did both "
          "arms see the same batches there?",
          kLeap, step[(first - 1) * tenth],
          step[std::min(end + 1, scatter.size() - 1) * tenth]);
    }
  }
  return "";
}

/// Larger than the cross entropy of any vocabulary at random.
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

std::vector<std::string> CurveWarnings(const compare::Pairing& pairing) {
  std::vector<std::string> warnings;
  const FirstGaps gaps = FirstGapsOf(pairing);
  // Where a relation holds, the check names it.
  if (gaps.any && RelationOf(pairing).text.empty()) {
    warnings.push_back(GapText(pairing, gaps) + ".");
  }
  for (std::string text : {ScatterWarning(pairing), ScaleWarning(pairing)}) {
    if (!text.empty()) warnings.push_back(std::move(text));
  }
  return warnings;
}

}  // namespace isoloss::gate
