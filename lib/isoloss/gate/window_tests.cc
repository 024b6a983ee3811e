#include "isoloss/gate/window_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/compare/written_digits.h"
#include "isoloss/gate/null_test.h"
#include "isoloss/gate/pairs_needed.h"
#include "isoloss/stats/student_t.h"

namespace isoloss::gate {
namespace {

using compare::FinalWindow;
using compare::SeedDifference;

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

double SmallestLoss(const compare::Pairing& pairing) {
  double least = std::numeric_limits<double>::infinity();
  for (const compare::SeedPair& pair : pairing.pairs) {
    least =
        std::min(least, std::ranges::min(pair.baseline->log.steps.loss_nats));
  }
  return least;
}

/// Returns the window that begins at that step.
FinalWindow From(int64_t step, FinalWindow window) {
  window.first_step = step;
  return window;
}

/// Returns the upper end of a one-sided interval of the mean, at `level`.
double UpperEnd(const std::vector<double>& values, double level,
                const KnownSpread* spread) {
  const stats::Summary summary = stats::Summarize(values);
  const double sd = spread != nullptr ? spread->sd_percent : summary.sd;
  const int64_t degrees =
      (spread != nullptr ? spread->members : summary.count) - 1;
  return summary.mean +
         stats::StudentTQuantile(1 - level, static_cast<double>(degrees)) * sd /
             std::sqrt(static_cast<double>(summary.count));
}

/// No alpha is left for this look, so nothing is decided and there is no
/// interval.
stats::EquivalenceResult NothingLeft() {
  return {.lower = -std::numeric_limits<double>::infinity(),
          .upper = std::numeric_limits<double>::infinity()};
}

}  // namespace

WindowTests::WindowTests(const Evidence& evidence, const FinalWindow& window,
                         const Policy& policy)
    : window_(window),
      policy_(policy),
      looks_(evidence.looks),
      alpha_(looks_ == nullptr ? policy.Alpha() : looks_->NominalAlpha(policy)),
      where_(WhereToLook(*evidence.pairing, window)),
      slope_(compare::FitTokenSlope(*evidence.pairing, window)),
      foreign_(!evidence.pairing->Knows(runlog::Fact::kExperiment)),
      resolution_(compare::WrittenPercent(*evidence.pairing)),
      hidden_nats_(resolution_ == 0
                       ? 0
                       : resolution_ / 100 * SmallestLoss(*evidence.pairing)),
      spread_(SpreadOfEnsemble(evidence, window, policy)),
      spread_of_last_(SpreadOfEnsemble(
          evidence, From(window.first_of_last_steps, window), policy)) {
  for (const int64_t step : window.ends) {
    spreads_of_ends_.push_back(
        SpreadOfEnsemble(evidence, From(step, window), policy));
  }
}

stats::EquivalenceOptions WindowTests::options() const {
  return OptionsOf(policy_, alpha_ == 0 ? policy_.Alpha() : alpha_);
}

bool WindowTests::HasSpread() const {
  const auto pairs = static_cast<int64_t>(window_.seeds.size());
  return borrows() || pairs >= std::max<int64_t>(2, policy_.min_seeds);
}

Check WindowTests::OfWindow() const {
  const Check check = NewCheck("final_window", "mean paired loss difference");
  const std::string scope =
      fmt::format("steps {} to {}", window_.first_step, window_.last_step);
  return policy_.InTokens() ? OfTokens(check, window_.Gaps(), scope)
                            : OfDifferences(check, window_.Percents(), scope,
                                            borrows() ? &*spread_ : nullptr);
}

Check WindowTests::OfLastSteps() const {
  const std::string scope = fmt::format(
      "steps {} to {}", window_.first_of_last_steps, window_.last_step);
  Check check = NewCheck("last_steps", "mean difference of the last steps");
  if (policy_.InTokens()) {
    check = OfTokens(check, window_.LastGaps(), scope);
  } else {
    check = OfDifferences(
        check, window_.LastPercents(), scope,
        borrows() && spread_of_last_ ? &*spread_of_last_ : nullptr);
  }
  check.pairs.reset();  // the limits are not those of a test at the margin
  const double margin = policy_.Margin();
  const bool two_sided = !policy_.one_sided;
  if (check.outcome == Outcome::kInconclusive && check.upper) {
    if (*check.value >= margin || (two_sided && *check.value <= -margin)) {
      check.relation = two_sided ? "beyond +-" : "beyond +";
      check.next = where_;
    } else if (*check.upper < 2 * margin &&
               (!two_sided || *check.lower > -2 * margin)) {
      check.outcome = Outcome::kPass;
      check.relation = two_sided ? "within +-" : "within +";
      check.next.clear();
    }
  }
  if (check.outcome == Outcome::kPass) LookAtEnds(check);
  if (check.outcome == Outcome::kPass) LookAtSeeds(check);
  return check;
}

stats::EquivalenceResult WindowTests::TestEnd(size_t end) const {
  stats::EquivalenceOptions of_end = options();
  of_end.alpha /= static_cast<double>(window_.ends.size());
  stats::EquivalenceResult result;
  if (policy_.InTokens()) {
    const auto interval =
        compare::TokensOf(window_.EndGaps(end), slope_, of_end.alpha).interval;
    result.lower = interval.lower;
    result.upper = interval.upper;
    result.outcome = stats::WhereIs(result.lower, result.upper, of_end);
    return result;
  }
  const stats::Summary summary = stats::Summarize(window_.EndPercents(end));
  if (!borrows()) {
    result = stats::TestEquivalence(summary, of_end);
  } else if (const auto& spread = spreads_of_ends_[end]) {
    result = TestWithSpread(summary, *spread, of_end);
  } else {
    return NothingLeft();
  }
  Widen(result);
  return result;
}

void WindowTests::LookAtEnds(Check& check) const {
  for (size_t end = 0; end < window_.ends.size(); ++end) {
    const auto [outcome, lower, upper] = TestEnd(end);
    if (outcome != stats::Equivalence::kOutside) continue;
    check.outcome = Outcome::kInconclusive;
    check.value = stats::Mean(policy_.InTokens() ? window_.EndGaps(end)
                                                 : window_.EndPercents(end));
    check.lower = lower;
    check.upper = upper;
    check.quantity = "mean difference at the end of the last steps";
    check.relation = policy_.one_sided ? "beyond +" : "beyond +-";
    check.evidence = fmt::format(
        "interval [{:+.3f} %, {:+.3f} %], steps {} to "
        "{}: a gap opens here",
        lower, upper, window_.ends[end], window_.last_step);
    check.next = where_;
    return;
  }
}

void WindowTests::LookAtSeeds(Check& check) const {
  constexpr size_t kFewest = 3;
  constexpr double kMargins = 2;
  constexpr double kNormal = 1.4826;  // a deviation's median, to its root mean
  const std::vector<double> percents = window_.LastPercents();
  if (policy_.InTokens() || percents.size() < kFewest) return;
  const double median = stats::Median(percents);
  std::vector<double> distances;
  for (const double percent : percents) {
    distances.push_back(std::fabs(percent - median));
  }
  const auto count = static_cast<double>(percents.size());
  const double chance =
      stats::StudentTQuantile(1 - options().alpha / (2 * count), count - 1) *
      kNormal * stats::Median(distances);
  const double limit = kMargins * policy_.Margin() + chance + resolution_;
  for (const SeedDifference& seed : window_.seeds) {
    const double percent = 100 * seed.last_steps;
    if (percent <= limit && (policy_.one_sided || percent >= -limit)) continue;
    check.outcome = Outcome::kInconclusive;
    check.quantity =
        fmt::format("difference of the last steps of seed {} alone", seed.seed);
    check.value = percent;
    check.lower.reset();
    check.upper.reset();
    check.interval_level.reset();
    check.limit = limit;
    check.relation = policy_.one_sided ? "beyond +" : "beyond +-";
    check.evidence = fmt::format(
        "{:g} margins and chance among {} seeds, steps {} to {}", kMargins,
        percents.size(), window_.first_of_last_steps, window_.last_step);
    check.next = where_;
    return;
  }
}

Check WindowTests::OfRareHarm() const {
  const auto pairs = static_cast<int64_t>(window_.seeds.size());
  const double unseen = RareHarmUnseen(pairs);
  Check check{.name = "rare_harm",
              .outcome = Outcome::kPass,
              .quantity = "upper end of the mean, with room for rare harm:",
              .relation = "below ",
              .limit = kRareMean * policy_.Margin(),
              .unit = "%"};
  check.evidence = fmt::format(
      "{} pair{} hold no seed of a harm in 1 of 12 with probability {:.2f}, "
      "and "
      "harm beyond {:g} margins then passes",
      pairs, pairs == 1 ? "" : "s", unseen, kRareMargins);
  const double level = options().alpha / unseen;
  if (level >= 1) {
    check.quantity = "harm in one seed of twelve is in these pairs";
    check.relation.clear();
    check.limit.reset();
    check.unit.clear();
    return check;
  }
  const double window = UpperEnd(
      policy_.InTokens()
          ? compare::TokensOf(window_.Gaps(), slope_, options().alpha).pairs
          : window_.Percents(),
      level, borrows() ? &*spread_ : nullptr);
  check.value = window;
  if (window_.held_out_step && !borrows()) {
    check.value = std::max(
        window,
        UpperEnd(policy_.InTokens() ? compare::TokensOf(window_.HeldOutGaps(),
                                                        slope_, options().alpha)
                                          .pairs
                                    : window_.HeldOutPercents(),
                 level, nullptr));
  }
  *check.value += policy_.InTokens() ? 0 : resolution_;
  if (*check.value < *check.limit) return check;
  check.outcome = Outcome::kInconclusive;
  check.relation = "not below ";
  check.next = "more seed pairs show rare harm, or narrow what is left open";
  return check;
}

Check WindowTests::OfHeldOut() const {
  const std::string scope = fmt::format("step {}", *window_.held_out_step);
  Check check = NewCheck("held_out", "mean paired held-out difference");
  check = policy_.InTokens()
              ? OfTokens(check, window_.HeldOutGaps(), scope)
              : OfDifferences(check, window_.HeldOutPercents(), scope, nullptr);
  if (*window_.held_out_step < window_.first_step) {
    check.outcome = Outcome::kInconclusive;
    check.next = fmt::format(
        "evaluate within the final window (steps {} to {}): this evaluation "
        "says nothing about the end of training",
        window_.first_step, window_.last_step);
  }
  return check;
}

Check WindowTests::NewCheck(const char* name, const char* quantity) const {
  return {.name = name,
          .quantity = quantity,
          .limit = policy_.Margin(),
          .unit = "%"};
}

Check WindowTests::OfDifferences(Check check,
                                 const std::vector<double>& percent,
                                 const std::string& scope,
                                 const KnownSpread* spread) const {
  Tested tested{.summary = stats::Summarize(percent), .about = scope};
  tested.borrowed = spread != nullptr;
  if (alpha_ == 0) {
    tested.result = NothingLeft();
  } else if (spread != nullptr) {
    tested.result = TestWithSpread(tested.summary, *spread, options());
    tested.about +=
        fmt::format(", spread {:.4f} % of {} pairs of {}", spread->sd_percent,
                    spread->members, spread->source);
  } else {
    tested.result = stats::TestEquivalence(tested.summary, options());
  }
  Widen(tested.result);
  return Decided(std::move(check), tested);
}

Check WindowTests::OfTokens(Check check, const std::vector<double>& gaps_nats,
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

compare::TokenDifference WindowTests::Shifted(std::vector<double> gaps_nats,
                                              double by) const {
  for (double& gap : gaps_nats) gap += by;
  return compare::TokensOf(gaps_nats, slope_, options().alpha);
}

void WindowTests::Widen(stats::EquivalenceResult& result) const {
  if (resolution_ == 0) return;
  result.lower -= resolution_;
  result.upper += resolution_;
  result.outcome = stats::WhereIs(result.lower, result.upper, options());
}

Check WindowTests::Decided(Check check, const Tested& tested) const {
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

}  // namespace isoloss::gate
