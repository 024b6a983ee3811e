#include "isoloss/gate/verdict.h"

#include <algorithm>

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

}  // namespace isoloss::gate
