#include "isoloss/report/reading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "isoloss/gate/check_titles.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/trajectory.h"
#include "isoloss/report/controls.h"
#include "isoloss/report/precision_text.h"

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

/// Those that made the outcome what it is.
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

/// "oracle" (L2), with the quotes.
std::string LevelText(std::string_view name) {
  return fmt::format("\"{}\" ({})", gate::LevelTitle(name), name);
}

// ---- the headline ----------------------------------------------------------

/// "+0.022 %": to at least a hundredth of the margin, so that a figure on
/// either side of it does not look as if it lay on it.
std::string Percent(double value, double margin) {
  if (!std::isfinite(value)) return "not finite";
  const double decimals = std::clamp(std::ceil(2 - std::log10(margin)), 1., 9.);
  const double unit = std::pow(10, decimals);
  // Without a sign of zero's.
  return fmt::format("{:+.{}f} %", std::round(value * unit) / unit + 0.0,
                     static_cast<int>(decimals));
}

/// "final loss +0.020 % (-0.050 % to +0.090 %, 8 seed pairs)"; of a margin in
/// tokens they are tokens. "" if the check measured nothing.
std::string FigureText(const Check* check, const gate::Policy& policy) {
  if (check == nullptr || !check->value || !check->pairs) return "";
  const double margin = policy.Margin();
  std::string spread = Count(check->pairs->count, "seed pair");
  if (check->lower && check->upper) {
    spread = fmt::format("{} to {}, {}", Percent(*check->lower, margin),
                         Percent(*check->upper, margin), spread);
  }
  const std::string what = check->name == kTrajectory
                               ? "loss of " + gate::StepsOfTrajectory(*check)
                               : gate::TitleOf(*check);
  return fmt::format("{} {}{} ({})", what,
                     policy.InTokens() ? "made up by tokens: " : "",
                     Percent(*check->value, margin), spread);
}

/// Whether the course of training is no reason for a PASS.
bool LeftTheCourse(const Check& check) {
  return check.name == kTrajectory && check.outcome != Outcome::kPass;
}

/// The figure of the check of L5 that decided, and, where the question stays
/// open, what the course of training says; failing that, that of the final
/// loss.
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

/// What PASS would say, as a clause.
std::string Claim(const Judgement& judgement) {
  const gate::Policy& policy = judgement.policy;
  const std::string& candidate = judgement.candidate.arm;
  if (IsRegression(judgement)) {
    return fmt::format("{} is still the run that was approved", candidate);
  }
  return policy.one_sided
             ? fmt::format("{} trains no worse than {} by more than {}",
                           candidate, judgement.baseline.arm, Margin(policy))
             : fmt::format("{} trains like {} within {}", candidate,
                           judgement.baseline.arm, Margin(policy));
}

/// "the check "final loss" (L5)", or how many there are beside it.
std::string Named(const std::vector<const Check*>& checks) {
  if (checks.empty()) return "no check at all";
  std::string text = fmt::format("the check \"{}\" ({})",
                                 gate::TitleOf(*checks[0]), checks[0]->level);
  if (checks.size() > 1) {
    text += fmt::format(
        " and {}",
        Count(static_cast<int64_t>(checks.size()) - 1, "other check"));
  }
  return text;
}

std::string Passes(const Judgement& judgement) {
  const std::string claim = Claim(judgement);
  if (IsRegression(judgement) && judgement.bit_equal) {
    return fmt::format(
        "{}: every bit is equal ({}, {}).", claim,
        Count(static_cast<int64_t>(judgement.divergences.size()), "seed pair"),
        Count(judgement.steps_planned, "step"));
  }
  if (IsRegression(judgement) && judgement.written_equal) {
    return fmt::format(
        "{}: every loss is equal, as far as the logs' digits go ({}, {}).",
        claim,
        Count(static_cast<int64_t>(judgement.divergences.size()), "seed pair"),
        judgement.compared_steps);
  }
  const std::string figure = DecidingFigure(judgement);
  if (!IsRegression(judgement)) {
    return figure.empty() ? claim + "." : fmt::format("{}: {}.", claim, figure);
  }
  const Check* window = GatingCheck(judgement, kFinalWindow);
  if (window != nullptr && window->outcome == Outcome::kPass) {
    return fmt::format("{} within {}, though not bit for bit: {}.", claim,
                       Margin(judgement.policy), figure);
  }
  std::vector<std::string> levels;
  for (const gate::LevelOutcome& level : judgement.levels) {
    const bool decided =
        std::ranges::any_of(judgement.checks, [&](const Check& check) {
          return check.gates && check.level == level.name;
        });
    if (decided) levels.push_back(LevelText(level.name));
  }
  return fmt::format("{}, though not bit for bit: {} found no fault.", claim,
                     fmt::join(levels, ", "));
}

std::string Fails(const Judgement& judgement) {
  const gate::Policy& policy = judgement.policy;
  const auto deciding = Deciding(judgement);
  const std::string& candidate = judgement.candidate.arm;
  const std::string& baseline = judgement.baseline.arm;
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
  const std::string figure = DecidingFigure(judgement);
  if (LeftTheCourse(**measured)) {
    const std::string limit =
        (*measured)->limit
            ? fmt::format(" is beyond {:.3g} %", *(*measured)->limit)
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
  const bool better = *(*measured)->value < 0;
  return fmt::format("{} trains {} than {} by more than {}{}: {}.", candidate,
                     better ? "better" : "worse", baseline, Margin(policy),
                     better ? ", which is a sign of an error as well" : "",
                     figure);
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

std::string Headline(const Judgement& judgement) {
  switch (judgement.outcome) {
    case Outcome::kPass:
      return Passes(judgement);
    case Outcome::kFail:
      return Fails(judgement);
    case Outcome::kInconclusive:
      return StaysOpen(judgement);
    case Outcome::kInvalid:
      break;
  }
  return CannotBeJudged(judgement);
}

/// How far two runs are equal before they part; "" if not even their first
/// step is, or if they never part.
std::string WhereTheyPart(const Judgement& judgement) {
  const gate::SeedDivergence* first = nullptr;
  for (const gate::SeedDivergence& seed : judgement.divergences) {
    if (!seed.first || seed.first->IsHeldOut()) continue;
    if (first == nullptr || seed.first->step < first->first->step) {
      first = &seed;
    }
  }
  // The first few losses may agree by their rounding alone.
  constexpr int64_t kFewest = 3;
  if (first == nullptr || first->equal_values < kFewest) return "";
  const bool long_equal = IsRegression(judgement) &&
                          first->equal_values >= judgement.policy.early_steps;
  return fmt::format(
      " Seed {} is equal in every {} up to step {} ({}); the first step that "
      "differs is {}.{}",
      first->seed, judgement.origin.empty() ? "bit" : "digit",
      first->equal_until, Count(first->equal_values, "value"),
      first->first->step,
      long_equal
          ? fmt::format(" Look at what came before step {}: a restart, a "
                        "checkpoint, or other data.",
                        first->first->step)
          : "");
}

// ---- reasons ---------------------------------------------------------------

/// "All 7 checks of the log integrity (L0) pass: seeds, same configuration, …".
std::vector<std::string> WhatPassed(const Judgement& judgement) {
  std::vector<std::string> sentences;
  for (const gate::LevelOutcome& level : judgement.levels) {
    std::vector<std::string> titles;
    const Check* only = nullptr;
    for (const Check& check : judgement.checks) {
      if (!check.gates || check.level != level.name) continue;
      only = &check;
      titles.push_back(gate::TitleOf(check));
      // Their figures are what a pass is about.
      if (check.pairs) sentences.push_back(SentenceOf(check));
    }
    if (only == nullptr || only->pairs) continue;
    sentences.push_back(titles.size() == 1
                            ? SentenceOf(*only)
                            : fmt::format("All {} checks of {} pass: {}.",
                                          titles.size(), LevelText(level.name),
                                          fmt::join(titles, ", ")));
  }
  return sentences;
}

std::vector<std::string> Reasons(const Judgement& judgement) {
  if (judgement.outcome == Outcome::kPass) return WhatPassed(judgement);
  std::vector<std::string> sentences;
  for (const Check* check : Deciding(judgement)) {
    sentences.push_back(SentenceOf(*check));
  }
  return sentences;
}

// ---- what it could have seen -----------------------------------------------

/// Of all tests of L5.
std::string SensitivityText(const std::vector<gate::Sensitivity>& tests,
                            const gate::Policy& policy) {
  std::string detectable;
  std::string at_zero;
  for (const gate::Sensitivity& of : tests) {
    detectable += fmt::format("{}{:.3g} % of the {}{}",
                              detectable.empty() ? "" : " or of ",
                              of.detectable, gate::TitleOf({.name = of.check}),
                              policy.InTokens() ? " in tokens" : "");
    at_zero += fmt::format("{}{:.2f}", at_zero.empty() ? "" : " and ",
                           of.power_at_zero);
    if (tests.size() > 1) {
      at_zero += fmt::format(" ({})", gate::TitleOf({.name = of.check}));
    }
  }
  return fmt::format(
      "With these {} a true difference of {} fails with probability {:g}, and "
      "recipes that do not differ pass with probability {}.",
      Count(tests.front().pairs, "seed pair"), detectable, tests.front().power,
      at_zero);
}

std::string ControlText(const Judgement& judgement) {
  const gate::Controls& controls = *judgement.controls;
  if (!controls.control && !controls.is_candidate) {
    return "No control is named, so nothing shows that a bad recipe would have "
           "been seen.";
  }
  if (!controls.control) {
    return fmt::format(
        "The control is \"{}\" itself, so that none is beside it.",
        judgement.candidate.arm);
  }
  return fmt::format("The control \"{}\" {}.", controls.control->arm,
                     ControlFinding(*controls.control));
}

/// Whether chance alone reaches across the whole margin in a test, so that the
/// test says nothing of the candidate either.
bool CrossesBothEnds(const gate::ArmTest& test) {
  return test.lower && test.upper &&
         *test.lower<-test.margin&& * test.upper> test.margin;
}

std::string NullText(const gate::ControlArm& arm) {
  const auto wide = std::ranges::find_if(arm.tests, CrossesBothEnds);
  if (wide != arm.tests.end()) {
    return fmt::format(
        "The null arm \"{}\" ({} again, which only chance drives away) reaches "
        "beyond both ends of the margin ({:+.3f} % to {:+.3f} %): this "
        "experiment is too small for its margin.",
        arm.arm, arm.recipe, *wide->lower, *wide->upper);
  }
  return fmt::format(
      "The null arm \"{}\" ({} again, which only chance drives away) {}.",
      arm.arm, arm.recipe,
      arm.tests.empty() ? "was not judged"
      : arm.Outside()   ? "lies outside the margin"
                        : "was not seen outside the margin");
}

/// Of other programs' runs, whose users do not know it.
std::vector<std::string> WhatLevelsNeed(const Judgement& judgement) {
  std::vector<std::string> sentences;
  for (const gate::Level* level : gate::Ladder()) {
    if (level->foreign_remedy.empty() ||
        std::ranges::count(judgement.without_evidence, level->name) == 0) {
      continue;
    }
    sentences.push_back(fmt::format("For {}: {}.", LevelText(level->name),
                                    level->foreign_remedy));
  }
  return sentences;
}

std::vector<std::string> CouldHaveSeen(const Judgement& judgement) {
  std::vector<std::string> sentences;
  if (judgement.outcome == Outcome::kInvalid) return sentences;
  if (judgement.precision && !judgement.precision->sensitivity.empty()) {
    sentences.push_back(
        SensitivityText(judgement.precision->sensitivity, judgement.policy));
  }
  if (judgement.controls) {
    sentences.push_back(ControlText(judgement));
    for (const gate::ControlArm& arm : judgement.controls->nulls) {
      sentences.push_back(NullText(arm));
    }
  }
  if (!judgement.without_evidence.empty()) {
    std::vector<std::string> levels;
    for (const std::string& name : judgement.without_evidence) {
      levels.push_back(LevelText(name));
    }
    sentences.push_back(
        fmt::format("Nothing was given for {}.", fmt::join(levels, ", ")));
    if (!judgement.origin.empty()) {
      std::ranges::move(WhatLevelsNeed(judgement),
                        std::back_inserter(sentences));
    }
  }
  sentences.push_back(
      judgement.power
          ? fmt::format("Measured with planted bugs: {}.",
                        judgement.power->Sentence())
          : fmt::format("What this gate catches of planted bugs is unknown: "
                        "{}.",
                        judgement.power_unknown));
  return sentences;
}

// ---- where it holds, what to do --------------------------------------------

std::vector<std::string> HoldsFor(const Judgement& judgement) {
  if (judgement.outcome != Outcome::kPass &&
      judgement.outcome != Outcome::kFail) {
    return {};
  }
  if (judgement.precision) {
    return {fmt::format("It holds for {}.", ValidFor(judgement))};
  }
  std::vector<int64_t> seeds;
  for (const auto& run : judgement.candidate.runs) seeds.push_back(run.seed);
  return {fmt::format(
      "It holds for these {} of {} with seed{} {}, and for no other recipe, "
      "model or corpus.",
      judgement.origin.empty() ? Count(judgement.steps_planned, "step")
                               : judgement.compared_steps,
      judgement.origin.empty()
          ? judgement.experiment
          : fmt::format("these logs ({})", judgement.origin),
      seeds.size() == 1 ? "" : "s", fmt::join(seeds, ", "))};
}

std::vector<std::string> Next(const Judgement& judgement) {
  std::vector<std::string> lines;
  if (judgement.outcome == Outcome::kPass) return lines;
  for (const Check* check : Deciding(judgement)) {
    const std::string next = gate::NextOf(*check);
    if (next.empty()) continue;
    lines.push_back(fmt::format("{}: {}", gate::TitleOf(*check), next));
  }
  return lines;
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
std::string Value(const Check& check) {
  return check.unit == "%" ? fmt::format("{:+.3f} %", *check.value)
                           : fmt::format("{:.5g}", *check.value);
}

}  // namespace

std::string StatementOf(const Check& check) {
  const std::string_view gap = check.unit.empty() ? "" : " ";
  std::string text = check.quantity;
  if (check.value.has_value()) text += fmt::format(" {}", Value(check));
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
      "The check \"{}\" ({}) {}: {}{}.", gate::TitleOf(check), check.level,
      Verb(check.outcome), statement,
      check.evidence.empty() ? "" : fmt::format(" ({})", check.evidence));
}

Reading ReadingOf(const Judgement& judgement) {
  return {.headline = Headline(judgement) + WhereTheyPart(judgement),
          .reasons = Reasons(judgement),
          .could_have_seen = CouldHaveSeen(judgement),
          .holds_for = HoldsFor(judgement),
          .next = Next(judgement)};
}

}  // namespace isoloss::report
