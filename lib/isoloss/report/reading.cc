#include "isoloss/report/reading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "isoloss/report/controls.h"
#include "isoloss/report/headline.h"
#include "isoloss/report/precision_text.h"

namespace isoloss::report {
namespace {

using gate::Check;
using gate::Judgement;
using gate::Outcome;

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
      titles.push_back(check.title);
      // Their figures are what a pass is about.
      if (check.pairs) sentences.push_back(SentenceOf(check));
    }
    if (only == nullptr || only->pairs) continue;
    sentences.push_back(titles.size() == 1
                            ? SentenceOf(*only)
                            : fmt::format("All {} checks of {} pass: {}.",
                                          titles.size(), LevelText(level),
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
    detectable += fmt::format(
        "{}{:.3g} % of the {}{}", detectable.empty() ? "" : " or of ",
        of.detectable, of.title, policy.InTokens() ? " in tokens" : "");
    at_zero += fmt::format("{}{:.2f}", at_zero.empty() ? "" : " and ",
                           of.power_at_zero);
    if (tests.size() > 1) {
      at_zero += fmt::format(" ({})", of.title);
    }
  }
  return fmt::format(
      "With these {} a true difference of {} fails with probability {:g}. An "
      "equal candidate passes with probability {}.",
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

/// Which levels lacked evidence, and what makes it of other programs' runs,
/// whose users do not know it.
std::vector<std::string> WhatLevelsLack(const Judgement& judgement) {
  std::vector<std::string> levels;
  std::vector<std::string> remedies;
  for (const gate::LevelOutcome& level : judgement.levels) {
    if (!level.lacks_evidence) continue;
    levels.push_back(LevelText(level));
    if (level.remedy.empty()) continue;
    remedies.push_back(
        fmt::format("For {}: {}.", LevelText(level), level.remedy));
  }
  if (levels.empty()) return {};
  std::vector<std::string> sentences = {
      fmt::format("Nothing was given for {}.", fmt::join(levels, ", "))};
  std::ranges::move(remedies, std::back_inserter(sentences));
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
  std::ranges::move(WhatLevelsLack(judgement), std::back_inserter(sentences));
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
    const std::string& next = check->WhatToDo();
    if (next.empty()) continue;
    lines.push_back(fmt::format("{}: {}", check->title, next));
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
      "The check \"{}\" ({}) {}: {}{}.", check.title, check.level,
      Verb(check.outcome), statement,
      check.evidence.empty() ? "" : fmt::format(" ({})", check.evidence));
}

Reading ReadingOf(const Judgement& judgement) {
  return {.headline = HeadlineOf(judgement),
          .reasons = Reasons(judgement),
          .could_have_seen = CouldHaveSeen(judgement),
          .holds_for = HoldsFor(judgement),
          .next = Next(judgement)};
}

}  // namespace isoloss::report
