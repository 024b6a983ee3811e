#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/compare/final_window.h"
#include "isoloss/compare/token_difference.h"
#include "isoloss/compare/written_digits.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/foreign_curves.h"
#include "isoloss/gate/good_runs.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/looks.h"
#include "isoloss/gate/null_test.h"
#include "isoloss/gate/precision_measures.h"
#include "isoloss/gate/trajectory.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/stats/equivalence.h"
#include "isoloss/stats/student_t.h"

namespace isoloss::gate {
namespace {

using compare::FinalWindow;
using compare::SeedDifference;

/// Returns the options of all tests of this level, and of the figures on their
/// power. `alpha` is the nominal level of this look at the seeds.
stats::EquivalenceOptions OptionsOf(const Policy& policy, double alpha) {
  return {.margin = policy.Margin(),
          .alpha = alpha,
          .power = policy.power,
          .one_sided = policy.one_sided};
}

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

/// Says how to get enough evidence.
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
      stats::RequiredPairs(differences, OptionsOf(policy, policy.alpha));
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

bool HasInterval(const stats::EquivalenceResult& result) {
  return std::isfinite(result.lower) && std::isfinite(result.upper);
}

std::string IntervalText(const stats::EquivalenceResult& result, double alpha) {
  if (alpha == 0) return "no interval, as no alpha is left for this look";
  if (!HasInterval(result)) return "no interval";
  return fmt::format("{:g} % interval [{:+.3f} %, {:+.3f} %]",
                     100 * (1 - 2 * alpha), result.lower, result.upper);
}

/// Says where the two runs of the worst seed are furthest apart.
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

/// Holds the spread of final windows between seeds, from an ensemble of good
/// pairs.
struct KnownSpread {
  double sd_percent = 0;
  int64_t members = 0;
  std::string source;
};

/// Returns the mean of 100 (L_c - L_b) / L_b over the window. Empty if the
/// member was not recorded that far.
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
    percent.push_back(compare::PercentDifference(candidate.loss_nats[i],
                                                 baseline.loss_nats[i]));
  }
  const int64_t needed = window.last_step - window.first_step + 1;
  if (static_cast<int64_t>(percent.size()) != needed) return std::nullopt;
  return stats::Mean(percent);
}

/// Takes the spread from a seeds ensemble of this configuration whose members
/// were recorded to the end. Empty if there is none.
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

/// Gives the result of stats::TestEquivalence for a spread that different
/// pairs showed: mean -+ t_{1-alpha,members-1} sd / sqrt(n).
stats::EquivalenceResult TestWithSpread(
    const stats::Summary& summary, const KnownSpread& spread,
    const stats::EquivalenceOptions& options) {
  const double half =
      stats::StudentTQuantile(1 - options.alpha,
                              static_cast<double>(spread.members - 1)) *
      spread.sd_percent / std::sqrt(static_cast<double>(summary.count));
  stats::EquivalenceResult result;
  result.lower = summary.mean - half;
  result.upper = summary.mean + half;
  result.outcome = stats::WhereIs(result.lower, result.upper, options);
  return result;
}

/// Whether the mean is larger than that of any benign change, however few
/// pairs there are. Under the question of precision nobody knows such a limit
/// before several seeds have shown the spread.
bool IsGross(const stats::Summary& summary, const Policy& policy) {
  const double limit = policy.gross_factor * policy.Margin();
  return policy.question == compare::Question::kRegression &&
         (summary.mean > limit || (!policy.one_sided && summary.mean < -limit));
}

/// Holds the result of a test, with its sample and its source.
struct Tested {
  stats::Summary summary;
  stats::EquivalenceResult result{};
  std::string about;      ///< where the differences are from
  bool borrowed = false;  ///< the spread is that of other pairs
};

double SmallestLoss(const compare::Pairing& pairing) {
  double least = std::numeric_limits<double>::infinity();
  for (const compare::SeedPair& pair : pairing.pairs) {
    least =
        std::min(least, std::ranges::min(pair.baseline->log.steps.loss_nats));
  }
  return least;
}

/// Decides whether the runs of one pairing are equivalent.
class WindowTests {
 public:
  WindowTests(const Evidence& evidence, const FinalWindow& window,
              const Policy& policy)
      : window_(window),
        policy_(policy),
        looks_(evidence.looks),
        alpha_(looks_ == nullptr ? policy.alpha : looks_->NominalAlpha(policy)),
        where_(WhereToLook(*evidence.pairing, window)),
        slope_(compare::FitTokenSlope(*evidence.pairing, window)),
        foreign_(!evidence.pairing->Knows(runlog::Fact::kExperiment)),
        resolution_(compare::WrittenPercent(*evidence.pairing)),
        hidden_nats_(resolution_ == 0
                         ? 0
                         : resolution_ / 100 * SmallestLoss(*evidence.pairing)),
        spread_(SpreadOfEnsemble(evidence, window, policy)) {}

  const compare::TokenSlope& slope() const { return slope_; }
  /// If this look has no alpha left, the options are at policy.alpha, for
  /// figures on the tests.
  double resolution() const { return resolution_; }
  stats::EquivalenceOptions options() const {
    return OptionsOf(policy_, alpha_ == 0 ? policy_.alpha : alpha_);
  }
  /// An ensemble replaces the spread that one pair can't show.
  bool borrows() const {
    return spread_.has_value() && window_.seeds.size() == 1;
  }

  Check OfWindow() const {
    const Check check = NewCheck("final_window", "mean paired loss difference");
    const std::string scope =
        fmt::format("steps {} to {}", window_.first_step, window_.last_step);
    return policy_.InTokens()
               ? OfTokens(check, window_.Gaps(), scope)
               : OfDifferences(check, window_.Percents(), scope, borrows());
  }

  /// Requires that there is a held-out loss.
  Check OfHeldOut() const {
    const std::string scope = fmt::format("step {}", *window_.held_out_step);
    Check check = NewCheck("held_out", "mean paired held-out difference");
    check = policy_.InTokens()
                ? OfTokens(check, window_.HeldOutGaps(), scope)
                : OfDifferences(check, window_.HeldOutPercents(), scope, false);
    if (*window_.held_out_step < window_.first_step) {
      check.outcome = Outcome::kInconclusive;
      check.next = fmt::format(
          "evaluate within the final window (steps {} to {}): this evaluation "
          "says nothing about the end of training",
          window_.first_step, window_.last_step);
    }
    return check;
  }

 private:
  Check NewCheck(const char* name, const char* quantity) const {
    return {.name = name,
            .quantity = quantity,
            .limit = policy_.Margin(),
            .unit = "%"};
  }

  /// No alpha is left for this look, so nothing is decided and there is no
  /// interval.
  static stats::EquivalenceResult NothingLeft() {
    return {.lower = -std::numeric_limits<double>::infinity(),
            .upper = std::numeric_limits<double>::infinity()};
  }

  /// Runs one equivalence test; differences are in percent.
  Check OfDifferences(Check check, const std::vector<double>& percent,
                      const std::string& scope, bool borrows) const {
    Tested tested{.summary = stats::Summarize(percent), .about = scope};
    tested.borrowed = borrows;
    if (alpha_ == 0) {
      tested.result = NothingLeft();
    } else if (borrows) {
      tested.result = TestWithSpread(tested.summary, *spread_, options());
      tested.about +=
          fmt::format(", spread {:.4f} % of {} pairs of {}",
                      spread_->sd_percent, spread_->members, spread_->source);
    } else {
      tested.result = stats::TestEquivalence(tested.summary, options());
    }
    Widen(tested.result);
    return Decided(std::move(check), tested);
  }

  /// Tests on the scale of tokens. The interval is Fieller's, which includes
  /// the uncertainty of the slope.
  Check OfTokens(Check check, const std::vector<double>& gaps_nats,
                 const std::string& scope) const {
    check.quantity = fmt::format("extra tokens for the {}", check.quantity);
    const auto tokens = compare::TokensOf(gaps_nats, slope_, options().alpha);
    if (!tokens.unknown.empty()) {
      check.outcome = Outcome::kInconclusive;
      check.relation = fmt::format("not known to be within {}",
                                   policy_.one_sided ? "+" : "+-");
      check.evidence = fmt::format("{}, {}", tokens.unknown, scope);
      check.next =
          "no slope, no tokens: give more seeds, longer runs, or a schedule "
          "that holds its rate for longer; or judge by margin_percent";
      return check;
    }
    Tested tested{.summary = stats::Summarize(tokens.pairs), .about = scope};
    if (alpha_ == 0) {
      tested.result = NothingLeft();
    } else {
      tested.result.lower = Shifted(gaps_nats, -hidden_nats_).interval.lower;
      tested.result.upper = Shifted(gaps_nats, hidden_nats_).interval.upper;
      tested.result.outcome =
          stats::WhereIs(tested.result.lower, tested.result.upper, options());
    }
    return Decided(std::move(check), tested);
  }

  /// Returns the token difference if each gap were larger by `by` nats.
  compare::TokenDifference Shifted(std::vector<double> gaps_nats,
                                   double by) const {
    for (double& gap : gaps_nats) gap += by;
    return compare::TokensOf(gaps_nats, slope_, options().alpha);
  }

  /// Widens the interval by the amount that the logs' digits hide, because the
  /// mean may be off by as much.
  void Widen(stats::EquivalenceResult& result) const {
    if (resolution_ == 0) return;
    result.lower -= resolution_;
    result.upper += resolution_;
    result.outcome = stats::WhereIs(result.lower, result.upper, options());
  }

  Check Decided(Check check, const Tested& tested) const {
    const auto& [summary, result, about, borrowed] = tested;
    check.value = summary.mean;
    check.pairs = summary;
    check.evidence =
        fmt::format("{}, {} seed pair{}, {}", IntervalText(result, alpha_),
                    summary.count, summary.count == 1 ? "" : "s", about);
    if (HasInterval(result)) {
      check.lower = result.lower;
      check.upper = result.upper;
      check.interval_level = 1 - 2 * alpha_;
    }
    const std::string side = policy_.one_sided ? "+" : "+-";
    if ((summary.count < policy_.min_seeds && !borrowed) ||
        result.outcome == stats::Equivalence::kUndecided) {
      check.outcome = Outcome::kInconclusive;
      check.relation = "not shown to be within " + side;
      if (IsGross(summary, policy_)) {
        check.outcome = Outcome::kFail;
        check.relation =
            fmt::format("more than {:g} times ", policy_.gross_factor) + side;
        check.next = where_;
        return check;
      }
      check.next = SeedsNeeded(summary, window_, policy_, looks_, foreign_);
    } else if (result.outcome == stats::Equivalence::kInside) {
      check.outcome = Outcome::kPass;
      check.relation = "within " + side;
    } else {
      check.outcome = Outcome::kFail;
      check.relation = "outside " + side;
      check.next = where_;
    }
    return check;
  }

  const FinalWindow& window_;
  const Policy& policy_;
  const Looks* looks_;
  const double alpha_;  ///< nominal, of this look; 0: none is left
  const std::string where_;
  const compare::TokenSlope slope_;
  const bool foreign_;
  const double resolution_;   ///< of the logs' digits, percent
  const double hidden_nats_;  ///< the same of the smallest loss
  const std::optional<KnownSpread> spread_;
};

LevelFindings JudgeFinalWindow(const Evidence& evidence, const Policy& policy) {
  LevelFindings found;
  const compare::Pairing& pairing = *evidence.pairing;
  if (auto check = SmoothedCurve(pairing, policy)) {
    found.checks.push_back(std::move(*check));
    // Smoothing of both arms neither hides nor causes a gap that lasts.
    Check course = JudgeTrajectory(evidence, policy, policy.alpha);
    if (course.outcome != Outcome::kPass && !IsOneArmSmoothed(pairing)) {
      found.checks.push_back(std::move(course));
    }
    return found;
  }
  found.final_window =
      compare::CompareFinalWindow(pairing, policy.window_share);
  const FinalWindow& window = *found.final_window;
  const WindowTests tests(evidence, window, policy);
  auto against_good_runs =
      AgainstGoodRuns(evidence, window, policy, tests.options().alpha);
  const bool judged_by_good_runs = against_good_runs.has_value();
  found.checks.push_back(against_good_runs ? std::move(*against_good_runs)
                                           : tests.OfWindow());
  if (!judged_by_good_runs) {
    if (auto check = ApartAtFirstStep(pairing, policy)) {
      found.checks.push_back(std::move(*check));
    } else if (auto other = OtherBatches(pairing)) {
      found.checks.push_back(std::move(*other));
    }
  }
  found.checks.push_back(
      JudgeTrajectory(evidence, policy, tests.options().alpha));
  if (window.held_out_step.has_value()) {
    found.checks.push_back(tests.OfHeldOut());
    Check& held_out = found.checks.back();
    // An ensemble says nothing about the spread of held-out losses. So one
    // pair within the margin is no reason to withhold the verdict.
    const double value = held_out.value.value_or(HUGE_VAL);
    const double distance = policy.one_sided ? value : std::fabs(value);
    held_out.gates = !(tests.borrows() && distance < policy.Margin());
  }
  if (policy.question == compare::Question::kPrecision) {
    found.precision = MeasurePrecision(pairing, found, tests.slope(),
                                       tests.options(), tests.resolution());
  }
  found.measures = MeasureWindow(pairing, window);
  return found;
}

}  // namespace

extern constinit const Level kLevel_l5_final_window = {
    .id = LevelId::l5_final_window,
    .name = "L5",
    .title = "end of training",
    .question =
        "is the mean paired loss difference at the end of training within the "
        "margin?",
    .needs = Needs::kSoundRuns,
    .decides = Decides::kBoth,
    .run = &JudgeFinalWindow};

}  // namespace isoloss::gate
