#include "isoloss/report/sentences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

#include "isoloss/gate/level.h"

namespace isoloss::report {
namespace {

using gate::Check;
using gate::Judgement;
using gate::Outcome;

constexpr std::string_view kFinalWindow = "final_window";
constexpr std::string_view kTrajectory = "trajectory";

bool IsRegression(const Judgement& judgement) {
  return judgement.policy.question == compare::Question::kRegression;
}

const Check* GatingCheck(const Judgement& judgement, std::string_view name) {
  const auto found = std::ranges::find_if(
      judgement.checks,
      [&](const Check& check) { return check.gates && check.name == name; });
  return found == judgement.checks.end() ? nullptr : &*found;
}

/// Returns "+0.022 %", rounded to at least a hundredth of the margin. A figure
/// beside the margin then does not look as if it were equal to it.
std::string Percent(double value, double margin) {
  if (!std::isfinite(value)) return "not finite";
  const double decimals = std::clamp(std::ceil(2 - std::log10(margin)), 1., 9.);
  const double unit = std::pow(10, decimals);
  // Adding 0 removes the sign of a negative zero.
  return fmt::format("{:+.{}f} %", std::round(value * unit) / unit + 0.0,
                     static_cast<int>(decimals));
}

/// Returns "final loss +0.020 % (-0.050 % to +0.090 %, 8 seed pairs)"; the
/// figures are tokens if the margin is in tokens. "" if the check measured
/// nothing.
std::string FigureText(const Check* check, const gate::Policy& policy) {
  if (check == nullptr || !check->value || !check->pairs) return "";
  const double margin = policy.Margin();
  std::string spread = Count(check->pairs->count, "seed pair");
  if (check->lower && check->upper) {
    spread = fmt::format("{} to {}, {}", Percent(*check->lower, margin),
                         Percent(*check->upper, margin), spread);
  }
  return fmt::format("{} {}{} ({})", check->subject,
                     policy.InTokens() ? "made up by tokens: " : "",
                     Percent(*check->value, margin), spread);
}

/// Returns whether the course of training is no reason for a PASS.
bool LeftTheCourse(const Check& check) {
  return check.name == kTrajectory && check.outcome != Outcome::kPass;
}

/// Returns the figure of the check of L5 that decided. If the question stays
/// open, it adds what the course of training says. Without a figure it returns
/// that of the final loss.
std::string DecidingFigure(const Judgement& judgement) {
  std::string text;
  for (const Check* check : Deciding(judgement)) {
    const bool course = LeftTheCourse(*check);
    std::string figure = FigureText(check, judgement.policy);
    if (figure.empty() && course) figure = check->quantity;
    const bool adds = course && judgement.outcome == Outcome::kInconclusive;
    if (figure.empty() || (!text.empty() && !adds)) continue;
    text += (text.empty() ? "" : "; ") + figure;
  }
  return text.empty() ? FigureText(GatingCheck(judgement, kFinalWindow),
                                   judgement.policy)
                      : text;
}

std::string Margin(const gate::Policy& policy) {
  return fmt::format("{:g} %{}", policy.Margin(),
                     policy.InTokens() ? " of its tokens" : "");
}

/// Returns whether the oracle took part and found no fault.
bool OraclePassed(const Judgement& judgement) {
  return std::ranges::any_of(
      judgement.levels, [](const gate::LevelOutcome& level) {
        return level.name == gate::LevelName(gate::LevelId::l2_oracle) &&
               level.outcome == Outcome::kPass;
      });
}

/// Says as a clause what PASS would mean if nobody judged the learning rate: a
/// training far from its best rate says little about a recipe.
std::string UntunedClaim(const Judgement& judgement) {
  const std::string& candidate = judgement.candidate.arm;
  return fmt::format("{} ends within {} of {} here",
                     OraclePassed(judgement)
                         ? fmt::format("this build emulates {}, and {}",
                                       judgement.candidate.recipe, candidate)
                         : candidate,
                     Margin(judgement.policy), judgement.baseline.arm);
}

/// Says as a clause what PASS would mean.
std::string Claim(const Judgement& judgement) {
  const gate::Policy& policy = judgement.policy;
  const std::string& candidate = judgement.candidate.arm;
  if (IsRegression(judgement)) {
    return fmt::format("{} is still the run that was approved", candidate);
  }
  if (!policy.require_tuning) return UntunedClaim(judgement);
  return policy.one_sided
             ? fmt::format("{} ends no worse than {} by more than {}",
                           candidate, judgement.baseline.arm, Margin(policy))
             : fmt::format("{} ends within {} of {}", candidate, Margin(policy),
                           judgement.baseline.arm);
}

/// Returns "the check "final loss" (L5)", and the number of further checks.
std::string Named(const std::vector<const Check*>& checks) {
  if (checks.empty()) return "no check at all";
  std::string text =
      fmt::format("the check \"{}\" ({})", checks[0]->title, checks[0]->level);
  if (checks.size() > 1) {
    text += fmt::format(
        " and {}",
        Count(static_cast<int64_t>(checks.size()) - 1, "other check"));
  }
  return text;
}

/// Says that all losses of a regression are equal; "" if they differ or this is
/// no regression. It claims no more equality than was compared.
std::string PassesAsEqual(const Judgement& judgement) {
  if (!IsRegression(judgement)) return "";
  const Check* bits = GatingCheck(judgement, "bit_equal");
  if (bits == nullptr && !judgement.written_equal) return "";
  const std::string& note = judgement.equality_note;
  return fmt::format(
      "{}: {} ({}, {}).{}{}", Claim(judgement),
      bits != nullptr ? bits->quantity
                      : "every loss is equal, as far as the logs' digits go",
      Count(static_cast<int64_t>(judgement.divergences.size()), "seed pair"),
      judgement.origin.empty() ? Count(judgement.steps_planned, "step")
                               : judgement.compared_steps,
      note.empty() ? "" : " ", note);
}

/// Says that a PASS rests on the course of training, too; "" if it was not
/// judged.
std::string CourseText(const Judgement& judgement) {
  return GatingCheck(judgement, kTrajectory) == nullptr
             ? ""
             : " The course of training keeps its limits.";
}

std::string Passes(const Judgement& judgement) {
  const std::string equal = PassesAsEqual(judgement);
  if (!equal.empty()) return equal;
  const std::string claim = Claim(judgement);
  const std::string figure = DecidingFigure(judgement);
  if (!IsRegression(judgement)) {
    return figure.empty()
               ? claim + "."
               : fmt::format("{}: {}.{}", claim, figure, CourseText(judgement));
  }
  const Check* window = GatingCheck(judgement, kFinalWindow);
  if (window != nullptr && window->outcome == Outcome::kPass) {
    const std::string& note = judgement.equality_note;
    return fmt::format("{}, as its loss differs by less than {}: {}.{}{}{}",
                       claim, Margin(judgement.policy), figure,
                       CourseText(judgement), note.empty() ? "" : " ", note);
  }
  std::vector<std::string> levels;
  for (const gate::LevelOutcome& level : judgement.levels) {
    const bool decided =
        std::ranges::any_of(judgement.checks, [&](const Check& check) {
          return check.gates && check.level == level.name;
        });
    if (decided) levels.push_back(LevelText(level));
  }
  return fmt::format("{}: some bits differ, but {} found no fault.", claim,
                     fmt::join(levels, ", "));
}

/// `measured` is the figure by which the candidate fails.
std::string FailsBy(const Judgement& judgement, const Check& measured) {
  const gate::Policy& policy = judgement.policy;
  const std::string& candidate = judgement.candidate.arm;
  const std::string& baseline = judgement.baseline.arm;
  const std::string figure = DecidingFigure(judgement);
  if (LeftTheCourse(measured)) {
    const std::string limit =
        measured.limit ? fmt::format(" is beyond {:.3g} %", *measured.limit)
                       : "";
    return IsRegression(judgement)
               ? fmt::format("{} is no longer the run that was approved: {}{}.",
                             candidate, figure, limit)
               : fmt::format("{} does not train like {}: {}{}.", candidate,
                             baseline, figure, limit);
  }
  if (IsRegression(judgement)) {
    return fmt::format(
        "{} is no longer the run that was approved: {} is beyond {}.",
        candidate, figure, Margin(policy));
  }
  const bool better = *measured.value < 0;
  return fmt::format("{} trains {} than {} by more than {}{}: {}.", candidate,
                     better ? "better" : "worse", baseline, Margin(policy),
                     better ? ", which is a sign of an error as well" : "",
                     figure);
}

std::string Fails(const Judgement& judgement) {
  const auto deciding = Deciding(judgement);
  const std::string& candidate = judgement.candidate.arm;
  const std::string& baseline = judgement.baseline.arm;
  if (const auto found = std::ranges::find_if(judgement.checks, &TellsRelation);
      found != judgement.checks.end()) {
    return fmt::format("{} fails against {}: {}.", candidate, baseline,
                       found->quantity);
  }
  const auto measured = std::ranges::find_if(deciding, [](const Check* check) {
    return (check->pairs && check->value) || LeftTheCourse(*check);
  });
  if (measured == deciding.end()) {
    return IsRegression(judgement)
               ? fmt::format(
                     "{} is no longer the run that was approved: {} "
                     "failed.",
                     candidate, Named(deciding))
               : fmt::format("{} fails against {}: {} failed.", candidate,
                             baseline, Named(deciding));
  }
  return FailsBy(judgement, **measured);
}

std::string StaysOpen(const Judgement& judgement) {
  const auto deciding = Deciding(judgement);
  const std::string figure = DecidingFigure(judgement);
  std::string text = fmt::format("It is not shown that {}", Claim(judgement));
  const bool measured = std::ranges::any_of(
      deciding, [](const Check* check) { return check->pairs.has_value(); });
  if (!measured) {
    text += fmt::format(", since {} {} open", Named(deciding),
                        deciding.size() > 1 ? "stay" : "stays");
  }
  return figure.empty() ? text + "." : fmt::format("{}: {}.", text, figure);
}

std::string CannotBeJudged(const Judgement& judgement) {
  const auto deciding = Deciding(judgement);
  if (deciding.empty()) return "There is nothing to judge.";
  return fmt::format(
      "{} cannot be judged against {}: {} found that a difference between "
      "these "
      "runs would mean nothing.",
      judgement.candidate.arm,
      IsRegression(judgement) ? "what was approved" : judgement.baseline.arm,
      Named(deciding));
}

/// Returns a sentence that follows another one.
std::string After(const std::string& sentence) {
  return sentence.empty() ? "" : " " + sentence;
}

std::string Headline(const Judgement& judgement) {
  switch (judgement.outcome) {
    case Outcome::kPass:
      return Passes(judgement) + After(judgement.rising_loss) +
             After(judgement.rate_note) +
             (judgement.looks && judgement.looks->unpaid
                  ? " It pays for no earlier look at fewer of these pairs."
                  : "");
    case Outcome::kFail:
      return Fails(judgement);
    case Outcome::kInconclusive:
      return StaysOpen(judgement);
    case Outcome::kInvalid:
      break;
  }
  return CannotBeJudged(judgement);
}

std::string_view Verb(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "passes";
    case Outcome::kFail:
      return "fails";
    case Outcome::kInconclusive:
      return "stays open";
    case Outcome::kInvalid:
      break;
  }
  return "finds nothing that could be judged";
}

/// A percentage keeps its sign; counts and ratios have none.
std::string ValueText(const Check& check) {
  return check.unit == "%" ? fmt::format("{:+.3f} %", *check.value)
                           : fmt::format("{:.5g}", *check.value);
}

/// Returns the pairs that part at a step of training, the earliest first.
std::vector<gate::SeedDivergence> PartedSeeds(const Judgement& judgement) {
  std::vector<gate::SeedDivergence> parted;
  std::ranges::copy_if(judgement.divergences, std::back_inserter(parted),
                       [](const gate::SeedDivergence& seed) {
                         return seed.first && !seed.first->IsHeldOut();
                       });
  std::ranges::stable_sort(parted, {}, [](const gate::SeedDivergence& seed) {
    return seed.first->step;
  });
  return parted;
}

/// Returns "Later part seed 4 at step 61, seed 5 at step 81." for the seeds
/// that part after the first; only their number if they are many.
std::string LaterSeeds(std::span<const gate::SeedDivergence> parted) {
  constexpr size_t kMost = 3;
  std::vector<std::string> later;
  for (const gate::SeedDivergence& seed : parted) {
    if (seed.first->step == parted.front().first->step) continue;
    later.push_back(
        fmt::format("seed {} at step {}", seed.seed, seed.first->step));
  }
  if (later.empty()) return "";
  return later.size() <= kMost
             ? fmt::format(" Later part {}.", fmt::join(later, ", "))
             : fmt::format(" {} others part later.", later.size());
}

/// Says how far pairs are equal before they part; "" if none parts, or if even
/// the first steps of the earliest differ.
std::string WhereTheyPart(const Judgement& judgement) {
  const std::vector<gate::SeedDivergence> parted = PartedSeeds(judgement);
  // The first few losses may agree by their rounding alone.
  constexpr int64_t kFewest = 3;
  if (parted.empty() || parted.front().equal_values < kFewest) return "";
  const gate::SeedDivergence& first = parted.front();
  const auto alike =
      std::ranges::count_if(parted, [&](const gate::SeedDivergence& seed) {
        return seed.first->step == first.first->step;
      });
  const bool long_equal = IsRegression(judgement) &&
                          first.equal_values >= judgement.policy.early_steps;
  return fmt::format(
      " {} equal in every {} up to step {} ({}); the first step that differs "
      "is {}.{}{}",
      alike == 1 ? fmt::format("Seed {} is", first.seed)
                 : fmt::format("{} seeds are", alike),
      judgement.origin.empty() ? "bit" : "digit", first.equal_until,
      Count(first.equal_values, "value"), first.first->step, LaterSeeds(parted),
      long_equal
          ? fmt::format(" Look at what came before step {}: a restart, a "
                        "checkpoint, or other data.",
                        first.first->step)
          : "");
}

}  // namespace

bool TellsRelation(const Check& check) {
  // If the pairs were refused because of their spread, the check has evidence.
  return check.name == "first_step" && check.gates && check.evidence.empty();
}

std::vector<const Check*> Deciding(const Judgement& judgement) {
  std::vector<const Check*> deciding;
  for (const Check& check : judgement.checks) {
    if (check.gates && check.outcome == judgement.outcome) {
      deciding.push_back(&check);
    }
  }
  return deciding;
}

std::string Count(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string LevelText(const gate::LevelOutcome& level) {
  return fmt::format("\"{}\" ({})", level.title, level.name);
}

std::string HeadlineOf(const Judgement& judgement) {
  return Headline(judgement) + WhereTheyPart(judgement);
}

std::string StatementOf(const Check& check) {
  const std::string_view gap = check.unit.empty() ? "" : " ";
  std::string text = check.quantity;
  if (check.value.has_value()) text += fmt::format(" {}", ValueText(check));
  if (check.limit.has_value()) {
    text += check.unit == "%" ? " " : ", ";
    text += fmt::format("{}{:.5g}{}{}", check.relation, *check.limit, gap,
                        check.unit);
  }
  return text;
}

std::string SentenceOf(const Check& check) {
  std::string statement = StatementOf(check);
  while (statement.ends_with('.')) statement.pop_back();
  return fmt::format(
      "The check \"{}\" ({}) {}: {}{}.", check.title, check.level,
      Verb(check.outcome), statement,
      check.evidence.empty() ? "" : fmt::format(" ({})", check.evidence));
}

std::string VerdictReasons(const Judgement& judgement) {
  std::string reasons;
  for (const Check& check : judgement.checks) {
    if (!check.gates || check.outcome != judgement.outcome) continue;
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", check.level,
                           check.name);
  }
  if (judgement.outcome == Outcome::kPass) {
    reasons = fmt::format(
        "{} checks pass",
        std::count_if(judgement.checks.begin(), judgement.checks.end(),
                      [](const Check& check) { return check.gates; }));
    const std::vector<std::string> lacking = judgement.WithoutEvidence();
    if (!lacking.empty()) {
      reasons += fmt::format("; no evidence: {}", fmt::join(lacking, ", "));
    }
    if (judgement.controls && judgement.controls->controls.empty() &&
        !judgement.controls->is_candidate) {
      reasons += "; no control";
    }
  }
  return reasons;
}

}  // namespace isoloss::report
