#include "isoloss/report/verdict_result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/report/controls.h"
#include "isoloss/report/precision_document.h"
#include "isoloss/report/sentences.h"

namespace isoloss::report {
namespace {

using gate::Check;
using gate::Judgement;
using gate::Outcome;

// ---- reasons ---------------------------------------------------------------

/// Returns "All 7 checks of the log integrity (L0) pass: seeds, same
/// configuration, …".
std::vector<std::string> WhatPassed(const Judgement& judgement) {
  std::vector<std::string> sentences;
  for (const gate::LevelOutcome& level : judgement.levels) {
    std::vector<std::string> titles;
    const Check* only = nullptr;
    bool told = false;
    for (const Check& check : judgement.checks) {
      if (!check.gates || check.level != level.name) continue;
      only = &check;
      titles.push_back(check.title);
      // A pass is about the figures of these checks.
      if (!check.pairs && check.name != "tuning") continue;
      sentences.push_back(SentenceOf(check));
      told = true;
    }
    if (only == nullptr || told) continue;
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

/// Describes the sensitivity of all tests of L5.
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
      "At the upper {:g} % limit of the spread over {}, true differences of {} "
      "fail with probability {:g}. {} test passes an equal candidate with "
      "probability {}.",
      100 * gate::kSpreadConfidence, Count(tests.front().pairs, "seed pair"),
      detectable, tests.front().power, tests.size() > 1 ? "Each" : "The",
      at_zero);
}

std::string ControlText(const Judgement& judgement) {
  const gate::Controls& controls = *judgement.controls;
  const gate::ControlArm* control = controls.Telling();
  if (control == nullptr && !controls.is_candidate) {
    return "No control is named, so nothing shows that a bad recipe would have "
           "been seen.";
  }
  if (control == nullptr) {
    return fmt::format(
        "The control is \"{}\" itself, so that none is beside it.",
        judgement.candidate.arm);
  }
  const bool mildest = controls.controls.size() > 1 && control->SeenWorse();
  return fmt::format(
      "{} \"{}\"{} {}.",
      mildest ? "The mildest control that failed," : "The control",
      control->arm, mildest ? "," : "", ControlFinding(*control));
}

/// Returns whether chance alone reaches across the whole margin in a test, so
/// that the test says nothing of the candidate either.
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

/// Names the levels that lacked evidence. For foreign programs' runs it also
/// says how to make the evidence, because their users do not know it.
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

// ---- checks ----------------------------------------------------------------

document::Status StatusOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return document::Status::kPass;
    case Outcome::kInconclusive:
      return document::Status::kInconclusive;
    case Outcome::kFail:
      return document::Status::kFailure;
    case Outcome::kInvalid:
      break;
  }
  return document::Status::kError;
}

document::Status StatusOf(const gate::Check& check) {
  if (check.gates) return StatusOf(check.outcome);
  return check.outcome == Outcome::kPass ? document::Status::kSkipped
                                         : document::Status::kNoticed;
}

std::vector<document::Figure> NumbersOf(const gate::Check& check) {
  std::vector<document::Figure> numbers;
  const auto put = [&](const char* name, const std::optional<double>& value,
                       const std::string& unit) {
    if (value) numbers.push_back({name, *value, unit});
  };
  put("statistic", check.value, check.unit);
  put("limit", check.limit, check.unit);
  put("lower", check.lower, check.unit);
  put("upper", check.upper, check.unit);
  put("coverage", check.interval_level, "");
  return numbers;
}

document::Check CheckOf(const gate::Check& check,
                        const std::string& level_title) {
  std::string statement = StatementOf(check);
  if (!check.gates) {
    statement = fmt::format("not needed for the verdict ({}): {}",
                            gate::OutcomeName(check.outcome), statement);
  }
  return {.group = check.level,
          .group_title = level_title,
          .name = check.name,
          .title = check.title,
          .status = StatusOf(check),
          .outcome = std::string(gate::OutcomeName(check.outcome)),
          .statement = std::move(statement),
          .numbers = NumbersOf(check),
          .evidence = check.evidence,
          .findings = check.findings,
          .next = check.WhatToDo(),
          .gates = check.gates,
          .explains = TellsRelation(check)};
}

/// Adds the levels that have no check, with the reason.
void AddLevelsWithoutChecks(const Judgement& judgement,
                            std::vector<document::Check>& checks) {
  for (const gate::LevelOutcome& level : judgement.levels) {
    const std::string name(level.name);
    if (std::ranges::count(judgement.checks, name, &gate::Check::level) != 0) {
      continue;
    }
    checks.push_back(
        {.group = name,
         .group_title = level.title,
         .name = std::string(document::kGroupCheck),
         .title = level.title,
         .status = document::Status::kSkipped,
         .statement = level.lacks_evidence
                          ? "it had no evidence"
                          : "it was not asked, or had nothing to judge"});
  }
}

/// Returns the experiment's name; "" for a foreign program's runs, whose logs
/// know none.
std::string ExperimentPrefix(const Judgement& judgement) {
  return judgement.experiment.empty() ? "" : judgement.experiment + ": ";
}

/// Returns the judgement with names of at most `most` bytes.
Judgement WithShortNames(Judgement judgement, size_t most) {
  const auto shorten = [most](std::string& name) {
    name = document::Shortened(Printable(name), most);
  };
  shorten(judgement.experiment);
  shorten(judgement.baseline.arm);
  shorten(judgement.candidate.arm);
  if (judgement.controls) {
    for (gate::ControlArm& arm : judgement.controls->controls) {
      shorten(arm.arm);
    }
    for (gate::ControlArm& arm : judgement.controls->nulls) shorten(arm.arm);
  }
  return judgement;
}

std::vector<document::Check> ChecksOf(const Judgement& judgement) {
  std::vector<document::Check> checks;
  for (const Check& check : judgement.checks) {
    const auto level = std::ranges::find(judgement.levels, check.level,
                                         &gate::LevelOutcome::name);
    checks.push_back(CheckOf(
        check, level == judgement.levels.end() ? check.level : level->title));
  }
  AddLevelsWithoutChecks(judgement, checks);
  return checks;
}

std::string SubjectOf(const Judgement& judgement) {
  const Judgement sides = WithSides(judgement);
  return fmt::format("{} against {}", sides.candidate.arm, sides.baseline.arm);
}

std::string DifferenceTitle(const Judgement& judgement) {
  const std::string margin =
      judgement.policy.InTokens()
          ? ""
          : fmt::format("   margin +-{:g}", judgement.policy.margin_percent);
  return fmt::format("Paired loss difference {} - {} in %{}",
                     judgement.candidate.arm, judgement.baseline.arm, margin);
}

}  // namespace

document::Chart DifferenceChart(const Judgement& judgement) {
  document::Chart chart;
  chart.title = DifferenceTitle(WithSides(judgement));
  chart.step = judgement.curves.step;
  chart.curves = {{judgement.curves.difference_percent, false}};
  chart.guides = {0};
  // A margin in tokens has no place on this scale.
  if (!judgement.policy.InTokens()) {
    const double percent = judgement.policy.margin_percent;
    chart.guides = {-percent, 0, percent};
  }
  chart.rows = 7;
  chart.signed_labels = true;
  if (judgement.final_window.has_value()) {
    chart.marked_step = judgement.final_window->first_step;
  }
  return chart;
}

gate::Judgement WithSides(gate::Judgement judgement) {
  if (judgement.policy.question == compare::Question::kRegression &&
      judgement.baseline.arm == judgement.candidate.arm) {
    judgement.baseline.arm = "approved";
    judgement.candidate.arm += " now";
  }
  return judgement;
}

document::Result ResultOf(const Judgement& judgement, std::string file) {
  const bool regression =
      judgement.policy.question == compare::Question::kRegression;
  document::Result result{
      .name =
          fmt::format("{}{} against {}", ExperimentPrefix(judgement),
                      judgement.candidate.arm,
                      regression ? "the approved run" : judgement.baseline.arm),
      .file = std::move(file),
      .status = StatusOf(judgement.outcome),
      .outcome = std::string(gate::OutcomeName(judgement.outcome)),
      .exit_code = gate::ExitCode(judgement.outcome),
      .headline = HeadlineOf(judgement),
      .subject = SubjectOf(judgement),
      .decided_by = VerdictReasons(judgement),
      .is_equal = judgement.bit_equal || judgement.written_equal,
      .reasons = Reasons(judgement),
      .could_have_seen = CouldHaveSeen(judgement),
      .holds_for = HoldsFor(judgement),
      .next = Next(judgement),
      .warnings = judgement.warnings,
      .facts = {{"question",
                 std::string(gate::QuestionName(judgement.policy.question))},
                {"policy", gate::PolicyDigest(judgement.policy)},
                {"program", judgement.tool_version},
                {"commit", judgement.commit}},
      .checks = ChecksOf(judgement)};
  if (!result.is_equal) result.picture = DifferenceChart(judgement);
  return result;
}

document::Result BriefResultOf(const Judgement& judgement,
                               const document::TextStyle& style) {
  return ResultOf(
      WithShortNames(judgement, static_cast<size_t>(style.width) / 4), "");
}

}  // namespace isoloss::report
