#include "isoloss/gate/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "isoloss/compare/routing_health.h"
#include "isoloss/gate/check_titles.h"
#include "isoloss/gate/foreign_runs.h"
#include "isoloss/gate/ladder.h"
#include "isoloss/gate/tuning.h"
#include "isoloss/runlog/content_digest.h"

namespace isoloss::gate {
namespace {

void Describe(const runlog::Provenance& provenance, Judgement& judgement) {
  judgement.experiment = provenance.experiment_name;
  judgement.experiment_digest = provenance.experiment_digest;
  judgement.config_digest = provenance.config_digest;
  judgement.corpus = provenance.corpus_description;
  judgement.corpus_digest = provenance.corpus_digest;
  judgement.tool_version = provenance.tool_version;
  judgement.commit = provenance.commit;
  judgement.steps_planned = provenance.steps_planned;
  judgement.tokens_per_step = provenance.tokens_per_step;
  judgement.parameters = provenance.parameters;
  judgement.unigram_entropy_nats = provenance.unigram_entropy_nats;
  judgement.entropy_floor_nats = provenance.entropy_floor_nats;
}

/// Warns of two changes at once, which can't be told apart. Empty if there are
/// not two.
std::string TwoChangesWarning(const compare::ArmSummary& baseline,
                              const compare::ArmSummary& candidate) {
  if (baseline.recipe == candidate.recipe || baseline.exchange.empty() ||
      candidate.exchange.empty() || baseline.exchange == candidate.exchange) {
    return "";
  }
  return fmt::format(
      "{} differs from {} in its exchange, too: the difference includes what "
      "dispatch and combine do. Compare arms with one exchange to judge the "
      "recipe.",
      candidate.arm, baseline.arm);
}

/// Warns of faults that were planted on purpose (train::Seams).
void AppendPlanted(const std::vector<const compare::Run*>& runs,
                   std::vector<std::string>& warnings) {
  for (const compare::Run* run : runs) {
    for (const runlog::Event& event : run->log.events) {
      if (event.kind != "mutant") continue;
      warnings.push_back(fmt::format("{}: this run has `{}` planted in it",
                                     compare::Label(*run), event.text));
    }
  }
}

/// Nobody knows what is in a build without a clean commit, and two such builds
/// look the same.
bool IsPinned(std::string_view commit) {
  return !commit.empty() && commit != "unknown" && !commit.ends_with("-dirty");
}

void AppendUnpinned(const std::vector<const compare::Run*>& runs,
                    std::vector<std::string>& warnings) {
  for (const compare::Run* run : runs) {
    const std::string& commit = run->log.provenance.commit;
    if (IsPinned(commit)) continue;
    warnings.push_back(fmt::format(
        "{}: commit `{}` does not pin the program that made it. Make runs "
        "with a build of a clean commit.",
        compare::Label(*run), commit));
    return;  // one build made the others, too
  }
}

std::vector<std::string> EvidenceList(const Evidence& evidence) {
  std::vector<std::string> list;
  for (const auto& probes :
       {evidence.candidate_probes, evidence.baseline_probes}) {
    for (const Probe& probe : probes) {
      list.push_back(fmt::format("probe {} (digest {})", Label(probe),
                                 runlog::ContentDigest(probe.log)));
    }
  }
  for (const NullEnsemble* ensemble : {evidence.benign, evidence.seeds}) {
    if (ensemble == nullptr) continue;
    list.push_back(fmt::format(
        "ensemble {} ({} members, digest {})", Label(*ensemble),
        ensemble->ensemble.members.size(), ensemble->ensemble.digest));
  }
  return list;
}

/// The strongest evidence against the verdict comes first.
std::vector<std::string> WarningsOf(const compare::Pairing& pairing,
                                    const Judgement& judgement) {
  std::vector<std::string> warnings;
  // Both arms of a regression have the same name, so a warning may occur
  // twice.
  const auto add = [&warnings](std::string warning) {
    if (warning.empty() || std::ranges::count(warnings, warning) != 0) return;
    warnings.push_back(std::move(warning));
  };
  const auto all = pairing.All();
  AppendPlanted(all, warnings);
  add(TwoChangesWarning(judgement.baseline, judgement.candidate));
  for (const auto* arm : {&judgement.baseline, &judgement.candidate}) {
    add(compare::LearningWarning(*arm));
  }
  for (std::string& warning :
       compare::RoutingWarnings(all, judgement.policy.window_share)) {
    warnings.push_back(std::move(warning));
  }
  for (std::string& warning : ForeignWarnings(pairing)) add(std::move(warning));
  if (pairing.Knows(runlog::Fact::kExperiment)) AppendUnpinned(all, warnings);
  return warnings;
}

/// Describes the subject of the verdict, before any level has run.
Judgement Describe(const Evidence& evidence, const Policy& policy) {
  const compare::Pairing& pairing = *evidence.pairing;
  Judgement judgement;
  judgement.policy = policy;
  const auto all = pairing.All();
  if (!all.empty()) Describe(all[0]->log.provenance, judgement);
  judgement.origin = OriginOf(pairing);
  judgement.compared_steps = ComparedSteps(pairing);
  judgement.baseline = compare::SummarizeArm(
      pairing.baseline_arm, pairing.baseline, policy.window_share);
  judgement.candidate = compare::SummarizeArm(
      pairing.candidate_arm, pairing.candidate, policy.window_share);
  judgement.rising_loss = compare::RisingLoss(pairing);
  if (evidence.looks != nullptr) judgement.looks = *evidence.looks;
  return judgement;
}

}  // namespace

Judgement Judge(const compare::Pairing& pairing, const Policy& policy) {
  return Judge(Evidence{.pairing = &pairing}, policy);
}

Judgement Judge(const Evidence& evidence, const Policy& policy,
                const LadderOptions& options) {
  const compare::Pairing& pairing = *evidence.pairing;
  const auto all = pairing.All();
  Judgement judgement = Describe(evidence, policy);
  if (!all.empty() && policy.question == compare::Question::kPrecision) {
    judgement.precision = {.trained = compare::ScaleOf(all[0]->log)};
  }
  judgement.warnings = WarningsOf(pairing, judgement);
  judgement.evidence = EvidenceList(evidence);
  RunLadder(evidence, judgement, options);
  ApplyTuning(evidence, judgement);
  ApplyControls(evidence.controls, judgement);
  if (judgement.outcome != Outcome::kInvalid) {
    judgement.curves = compare::MeanCurves(pairing);
    if (!pairing.Knows(runlog::Fact::kBits))
      judgement.peers = PeerOpinions(pairing);
  }
  return judgement;
}

Judgement JudgeStopped(const Evidence& evidence, const Policy& policy,
                       Check stop) {
  Judgement judgement = Describe(evidence, policy);
  const std::string_view level = LevelName(LevelId::l6_sequential);
  Entitle(level, stop);
  judgement.outcome = stop.outcome;
  judgement.levels = {
      {.name = level,
       .outcome = stop.outcome,
       .title = std::string(LevelTitle(LevelId::l6_sequential))}};
  judgement.checks = {std::move(stop)};
  return judgement;
}

}  // namespace isoloss::gate
