#include "isoloss/gate/verdict.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace isoloss::gate {

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "PASS";
    case Outcome::kInconclusive:
      return "INCONCLUSIVE";
    case Outcome::kFail:
      return "FAIL";
    case Outcome::kInvalid:
      break;
  }
  return "INVALID";
}

int ExitCode(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return 0;
    case Outcome::kInconclusive:
      return 4;
    case Outcome::kFail:
      return 1;
    case Outcome::kInvalid:
      break;
  }
  return 3;
}

void FailOnFindings(std::string_view next, Check& check) {
  if (check.findings.empty()) return;
  check.outcome = Outcome::kFail;
  check.evidence += "; " + check.findings[0];
  check.next = next;
}

Outcome Severest(std::span<const Check> checks) {
  std::optional<Outcome> severest;
  for (const Check& check : checks) {
    if (!check.gates) continue;
    severest = std::max(severest.value_or(Outcome::kPass), check.outcome);
  }
  return severest.value_or(Outcome::kInvalid);
}

Outcome Severest(std::span<const Judgement> judgements) {
  if (judgements.empty()) return Outcome::kInvalid;
  return std::ranges::max_element(judgements, {}, &Judgement::outcome)->outcome;
}

const std::string& Check::WhatToDo() const {
  return next.empty() && outcome != Outcome::kPass ? remedy : next;
}

void LevelFindings::Add(LevelFindings other) {
  std::ranges::move(other.checks, std::back_inserter(checks));
  std::ranges::move(other.measures, std::back_inserter(measures));
  std::ranges::move(other.divergences, std::back_inserter(divergences));
  std::ranges::move(other.tensors, std::back_inserter(tensors));
  bit_equal = bit_equal || other.bit_equal;
  written_equal = written_equal || other.written_equal;
  equality_note += other.equality_note;
  if (other.final_window) final_window = std::move(other.final_window);
  if (other.precision) precision = std::move(other.precision);
}

std::vector<std::string> Judgement::WithoutEvidence() const {
  std::vector<std::string> names;
  for (const LevelOutcome& level : levels) {
    if (level.lacks_evidence) names.emplace_back(level.name);
  }
  return names;
}

}  // namespace isoloss::gate
