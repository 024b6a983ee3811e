#include "isoloss/gate/foreign_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
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

/// Later than this chance alone parts two runs (chaos sets in between steps 5
/// and 20).
constexpr int64_t kLastFirstStep = 10;

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
  const bool is_power = std::exp2(std::round(std::log2(whole))) == whole;
  if (whole < 2 || (whole > kLargest && !is_power) ||
      !is_near(std::max(factor, 1 / factor), whole)) {
    return "";
  }
  return fmt::format(
      "{}{:g}, as of a sum in place of a mean over micro-batches or ranks",
      factor < 1 ? "1/" : "", whole);
}

/// All losses of one run are `value` times, or `value` more than, the other's.
struct Constant {
  double value = 0;
  double scatter = 0;  ///< of single steps, relative to what is constant
};

Constant FactorOf(const compare::SeedPair& pair) {
  const std::vector<double> percent = PercentsOf(pair);
  const stats::Summary summary = stats::Summarize(percent);
  return {1 + summary.mean / 100, summary.sd / std::fabs(summary.mean)};
}

Constant OffsetOf(const compare::SeedPair& pair) {
  std::vector<double> gaps;
  const auto& a = pair.baseline->log.steps.loss_nats;
  const auto& b = pair.candidate->log.steps.loss_nats;
  std::ranges::transform(b, a, std::back_inserter(gaps), std::minus<>());
  const stats::Summary summary = stats::Summarize(gaps);
  return {summary.mean, summary.sd / std::fabs(summary.mean)};
}

/// What is constant from the first step on is no effect of training, in which
/// runs part little by little.
std::string ConstantText(const compare::Pairing& pairing) {
  constexpr double kLeastShift = 0.05;  // of the loss: no recipe begins so
  constexpr double kConstant = 0.05;    // scatter, of what is constant
  double factor = 0;
  double offset = 0;
  double factor_scatter = 0;
  double offset_scatter = 0;
  for (const compare::SeedPair& pair : pairing.pairs) {
    const Constant times = FactorOf(pair);
    const Constant more = OffsetOf(pair);
    if (!(std::fabs(times.value - 1) > kLeastShift)) return "";
    const auto pairs = static_cast<double>(pairing.pairs.size());
    factor += times.value / pairs;
    offset += more.value / pairs;
    factor_scatter = std::max(factor_scatter, times.scatter);
    offset_scatter = std::max(offset_scatter, more.scatter);
  }
  // Where losses hardly fall the two are alike.
  if (factor_scatter < kConstant && factor_scatter <= 2 * offset_scatter) {
    const std::string unit = UnitText(factor);
    return fmt::format(
        "each loss of {} is {:.5g} times that of {}, from the first step on{}",
        pairing.candidate_arm, factor, pairing.baseline_arm,
        unit.empty() ? "" : ": " + unit);
  }
  if (offset_scatter < kConstant) {
    return fmt::format(
        "each loss of {} is {:.5g} {} than that of {}, from the first step on, "
        "as if a term were added to it",
        pairing.candidate_arm, std::fabs(offset),
        offset > 0 ? "larger" : "smaller", pairing.baseline_arm);
  }
  return "";
}

// ---- other weights or data -------------------------------------------------

/// What the first step of all pairs shows, in percent of the loss.
struct FirstGaps {
  std::vector<double> percents;
  size_t worst = 0;   ///< the pair that is furthest apart
  double digits = 0;  ///< what the digits of the logs hide
  double end = 0;     ///< single steps of the final window, rms
  double seeds = 0;   ///< between seeds, of both arms; 0: unknown
  bool any = false;   ///< the first step tells something
};

/// Unpaired losses differ by the spread between seeds of both arms.
double SpreadOfSeeds(const compare::Pairing& pairing) {
  constexpr size_t kFewest = 3;  // two may be alike by chance
  if (pairing.pairs.size() < kFewest) return 0;
  double variance = 0;
  for (const auto run :
       {&compare::SeedPair::baseline, &compare::SeedPair::candidate}) {
    std::vector<double> first;
    for (const compare::SeedPair& pair : pairing.pairs) {
      first.push_back((pair.*run)->log.steps.loss_nats.front());
    }
    const stats::Summary summary = stats::Summarize(first);
    variance += std::pow(100 * summary.sd / summary.mean, 2);
  }
  return std::sqrt(variance);
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
  gaps.seeds = SpreadOfSeeds(pairing);
  gaps.any =
      std::fabs(gaps.percents[gaps.worst]) > kRoundingPercent + gaps.digits;
  return gaps;
}

/// Why runs that are so far apart at the first step are no pairs; "" if they
/// may be.
std::string WhyNoPairs(const FirstGaps& gaps, const Policy& policy) {
  const double worst = std::fabs(gaps.percents[gaps.worst]);
  if (worst > policy.margin_percent + gaps.digits) {
    return fmt::format("the margin is {:g} %", policy.margin_percent);
  }
  // Runs that begin alike part with time, and those of a coarse recipe stay
  // apart. Only those that began apart come nearer.
  constexpr double kNearer = 3;
  const double first = RootMeanSquare(gaps.percents);
  if (first > kNearer * gaps.end + gaps.digits) {
    return fmt::format("single steps of the end are {:.3g} % apart", gaps.end);
  }
  // A recipe shifts all seeds alike, other weights and batches do not.
  constexpr double kUnpaired = 0.5;
  const double scatter = stats::Summarize(gaps.percents).sd;
  if (gaps.seeds > 0 && scatter > kUnpaired * gaps.seeds + gaps.digits) {
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
      "where rounding gives some 0.001 %: other initial weights, data or unit",
      a.step.front(), pair.seed, b.loss_nats.front() - a.loss_nats.front(),
      gaps.percents[gaps.worst]);
}

// ---- smoothing --------------------------------------------------------------

/// Smoothing puts off a difference and makes it smaller. It makes none that is
/// beyond the margin on one side in each tenth, from the first on.
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

}  // namespace

std::optional<Check> SmoothedCurve(const compare::Pairing& pairing,
                                   const Policy& policy) {
  for (const compare::Run* run : pairing.All()) {
    const runlog::RunLog& log = run->log;
    if (!log.told.looks_smoothed &&
        log.provenance.origin.values() != runlog::LossValues::kSmoothed) {
      continue;
    }
    if (HasGapThroughout(pairing, policy)) return std::nullopt;
    return Check{
        .name = "final_window",
        .outcome = Outcome::kInconclusive,
        .quantity = fmt::format(
            "{}: its losses {} smoothed, and a mean of them is one of other "
            "steps",
            compare::Label(*run),
            log.told.looks_smoothed ? "move as if they were" : "are"),
        .next = "export the curves without smoothing"};
  }
  return std::nullopt;
}

std::optional<Check> ApartAtFirstStep(const compare::Pairing& pairing,
                                      const Policy& policy) {
  const FirstGaps gaps = FirstGapsOf(pairing);
  if (!gaps.any) return std::nullopt;
  Check check{.name = "first_step", .outcome = Outcome::kInconclusive};
  if (const std::string constant = ConstantText(pairing); !constant.empty()) {
    check.quantity = constant + ". That is no effect of training";
    check.next = "log the losses of both arms in one unit";
    return check;
  }
  const std::string why = WhyNoPairs(gaps, policy);
  if (why.empty()) return std::nullopt;
  check.quantity = GapText(pairing, gaps);
  check.evidence = why;
  check.next =
      "train both runs of each seed from equal weights and batches; a paired "
      "difference means nothing without";
  return check;
}

std::vector<std::string> FirstStepWarnings(const compare::Pairing& pairing) {
  const FirstGaps gaps = FirstGapsOf(pairing);
  if (!gaps.any) return {};
  return {GapText(pairing, gaps) + "."};
}

}  // namespace isoloss::gate
