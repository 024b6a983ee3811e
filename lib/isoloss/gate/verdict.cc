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

Outcome Severest(const std::vector<Check>& checks) {
  if (checks.empty()) return Outcome::kInvalid;
  return std::max_element(checks.begin(), checks.end(),
                          [](const Check& a, const Check& b) {
                            return a.outcome < b.outcome;
                          })
      ->outcome;
}

}  // namespace isoloss::gate
