#include "isoloss/report/verdict_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "isoloss/report/reading.h"

namespace isoloss::report {
namespace {

CiStatus StatusOf(gate::Outcome outcome) {
  switch (outcome) {
    case gate::Outcome::kPass:
      return CiStatus::kPass;
    case gate::Outcome::kInconclusive:
      return CiStatus::kInconclusive;
    case gate::Outcome::kFail:
      return CiStatus::kFailure;
    case gate::Outcome::kInvalid:
      break;
  }
  return CiStatus::kError;
}

CiStatus StatusOf(const gate::Check& check) {
  if (check.gates) return StatusOf(check.outcome);
  return check.outcome == gate::Outcome::kPass ? CiStatus::kSkipped
                                               : CiStatus::kNoticed;
}

std::vector<CiNumber> NumbersOf(const gate::Check& check) {
  std::vector<CiNumber> numbers;
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

CiCase CaseOf(const gate::Check& check) {
  std::string statement = StatementOf(check);
  if (!check.gates) {
    statement = fmt::format("not needed for the verdict ({}): {}",
                            gate::OutcomeName(check.outcome), statement);
  }
  return {.group = check.level,
          .name = check.name,
          .title = check.title,
          .status = StatusOf(check),
          .statement = std::move(statement),
          .numbers = NumbersOf(check),
          .evidence = check.evidence,
          .findings = check.findings,
          .next = check.WhatToDo()};
}

/// A level that has no check says why it has none.
void AddLevelsWithoutChecks(const gate::Judgement& judgement,
                            std::vector<CiCase>& cases) {
  for (const gate::LevelOutcome& level : judgement.levels) {
    const std::string name(level.name);
    if (std::ranges::count(judgement.checks, name, &gate::Check::level) != 0) {
      continue;
    }
    cases.push_back(
        {.group = name,
         .name = "level",
         .title = level.title,
         .status = CiStatus::kSkipped,
         .statement = level.lacks_evidence
                          ? "it had no evidence"
                          : "it was not asked, or had nothing to judge"});
  }
}

/// "" of another program's runs, whose logs know none.
std::string ExperimentPrefix(const gate::Judgement& judgement) {
  return judgement.experiment.empty() ? "" : judgement.experiment + ": ";
}

}  // namespace

CiSuite SuiteOf(const gate::Judgement& judgement, std::string file) {
  Reading reading = ReadingOf(judgement);
  const std::string outcome(gate::OutcomeName(judgement.outcome));
  CiSuite suite{
      .name = fmt::format("{}{} against {}", ExperimentPrefix(judgement),
                          judgement.candidate.arm, judgement.baseline.arm),
      .file = std::move(file),
      .status = StatusOf(judgement.outcome),
      .outcome = outcome,
      .exit_code = gate::ExitCode(judgement.outcome),
      .headline = fmt::format("{}: {}", outcome, reading.headline),
      .why = std::move(reading.reasons),
      .seen = std::move(reading.could_have_seen),
      .holds = std::move(reading.holds_for),
      .next = std::move(reading.next),
      .warnings = judgement.warnings};
  if (judgement.policy.question == compare::Question::kRegression) {
    suite.name =
        fmt::format("{}{} against the approved run",
                    ExperimentPrefix(judgement), judgement.candidate.arm);
  }
  suite.facts = {
      {"question", std::string(gate::QuestionName(judgement.policy.question))},
      {"policy", gate::PolicyDigest(judgement.policy)},
      {"program", judgement.tool_version},
      {"commit", judgement.commit}};
  for (const gate::Check& check : judgement.checks) {
    suite.cases.push_back(CaseOf(check));
  }
  AddLevelsWithoutChecks(judgement, suite.cases);
  return suite;
}

}  // namespace isoloss::report
