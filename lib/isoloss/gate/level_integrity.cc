#include <fmt/format.h>

#include <algorithm>

#include "isoloss/compare/integrity.h"
#include "isoloss/gate/ladder.h"

namespace isoloss::gate {
namespace {

Outcome OutcomeOf(compare::Severity severity) {
  switch (severity) {
    case compare::Severity::kUnverified:
      return Outcome::kInconclusive;
    case compare::Severity::kBad:
      return Outcome::kFail;
    case compare::Severity::kIncomparable:
      break;
  }
  return Outcome::kInvalid;
}

Check CheckOf(const compare::IntegrityRule& rule,
              const std::vector<compare::Finding>& findings,
              const compare::Pairing& pairing) {
  Check check{.level = "L0",
              .name = std::string(rule.name),
              .outcome = Outcome::kPass,
              .quantity = std::string(rule.promise)};
  if (findings.empty()) {
    check.evidence = fmt::format("{} runs", pairing.All().size());
    return check;
  }
  const compare::Finding* worst = &findings[0];
  for (const compare::Finding& finding : findings) {
    check.findings.push_back(finding.message);
    if (OutcomeOf(finding.severity) > OutcomeOf(worst->severity)) {
      worst = &finding;
    }
  }
  check.outcome = OutcomeOf(worst->severity);
  check.quantity = worst->message;
  if (findings.size() > 1) {
    check.evidence = fmt::format("one of {} findings", findings.size());
  }
  return check;
}

}  // namespace

Climb ClimbIntegrity(const Evidence& evidence, Judgement& judgement) {
  const compare::Pairing& pairing = *evidence.pairing;
  for (const compare::IntegrityRule& rule : compare::IntegrityRules()) {
    const auto findings = rule.check(pairing, judgement.policy.question);
    judgement.checks.push_back(CheckOf(rule, findings, pairing));
    if (judgement.checks.back().outcome == Outcome::kInvalid) break;
  }
  return Climb::kGoOn;
}

}  // namespace isoloss::gate
