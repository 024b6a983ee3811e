#include <fmt/format.h>

#include <utility>

#include "isoloss/compare/integrity.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/runlog/domain_check.h"

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

using compare::Finding;
using compare::Severity;

/// Returns the severest of the findings, or a pass if there are none. Then
/// `passed` is what holds, and `of` is what it holds of.
Check CheckOf(std::string_view name, std::string_view passed, std::string of,
              const std::vector<Finding>& findings) {
  Check check{.name = std::string(name),
              .outcome = Outcome::kPass,
              .quantity = std::string(passed)};
  if (findings.empty()) {
    check.evidence = std::move(of);
    return check;
  }
  const Finding* worst = &findings[0];
  for (const Finding& finding : findings) {
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

/// Reports the first run that did not follow its schedule.
void AddWrongRates(const NullEnsemble& null, std::vector<Finding>& findings) {
  const runlog::Ensemble& ensemble = null.ensemble;
  if (!ensemble.provenance.Knows(runlog::Fact::kExperiment)) return;
  for (const runlog::EnsembleMember& member : ensemble.members) {
    for (const auto& wrong :
         {compare::WrongRate(ensemble.provenance, member.steps),
          compare::WrongRate(ensemble.reference_provenance,
                             member.reference_steps)}) {
      if (!wrong) continue;
      findings.push_back({Severity::kIncomparable,
                          fmt::format("{}: {}", Label(null), wrong->message)});
      return;
    }
  }
}

/// Checks the numbers in probes and ensembles, too. The members of an ensemble
/// are good runs, so a fault in one makes the ensemble unfit to judge by.
void CheckEvidence(const Evidence& evidence, LevelFindings& found) {
  std::vector<Finding> findings;
  size_t files = 0;
  const auto add = [&](const auto& file, const auto& content, bool is_good) {
    ++files;
    for (const runlog::Violation& violation : runlog::CheckDomains(content)) {
      const bool bad = violation.fault == runlog::Fault::kRun && !is_good;
      findings.push_back({bad ? Severity::kBad : Severity::kIncomparable,
                          Label(file) + ": " + violation.message});
    }
  };
  for (const auto& probes :
       {evidence.candidate_probes, evidence.baseline_probes}) {
    for (const Probe& probe : probes) add(probe, probe.log, false);
  }
  for (const NullEnsemble* ensemble : {evidence.benign, evidence.seeds}) {
    if (ensemble == nullptr) continue;
    add(*ensemble, ensemble->ensemble, true);
    AddWrongRates(*ensemble, findings);
  }
  if (files == 0) return;
  found.checks.push_back(
      CheckOf("evidence_domains",
              "probes and ensembles are whole, every value in its domain",
              fmt::format("{} files", files), findings));
}

/// Applies the rules of compare::IntegrityRules(), up to the first that finds
/// the runs incomparable.
LevelFindings JudgeIntegrity(const Evidence& evidence, const Policy& policy) {
  LevelFindings found;
  const compare::Pairing& pairing = *evidence.pairing;
  const bool foreign = !pairing.Knows(runlog::Fact::kExperiment);
  for (const compare::IntegrityRule& rule : compare::IntegrityRules()) {
    const auto findings = rule.check(pairing, policy.question);
    const std::string_view promise = rule.PromiseFor(pairing, policy.question);
    if (findings.empty() && promise.empty()) continue;
    found.checks.push_back(CheckOf(rule.name, promise,
                                   fmt::format("{} runs", pairing.All().size()),
                                   findings));
    const bool of_change = rule.name == std::string_view("declared_change");
    if (found.checks.back().outcome == Outcome::kInconclusive && of_change) {
      found.checks.back().next = "give the log of another run";
    } else if (foreign && !findings.empty()) {
      found.checks.back().next =
          of_change
              ? "if the question is whether a change altered the run, equal is "
                "right: isoloss gate NOW.log --against APPROVED.log"
              : "see what each log holds: isoloss import LOG";
    }
    if (found.checks.back().outcome == Outcome::kInvalid) return found;
  }
  CheckEvidence(evidence, found);
  return found;
}

}  // namespace

extern constinit const Level kLevel_l0_integrity = {
    .id = LevelId::l0_integrity,
    .name = "L0",
    .title = "log integrity",
    .question = "may the runs be compared, and is each what it claims to be?",
    .needs = Needs::kRuns,
    .decides = Decides::kNoneAlone,
    .run = &JudgeIntegrity};

}  // namespace isoloss::gate
