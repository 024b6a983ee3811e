#include "isoloss/logs/evidence_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/printable.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::logs {
namespace {

std::vector<gate::Probe> ProbesOf(const EvidenceFiles& evidence,
                                  const std::string& arm) {
  std::vector<gate::Probe> probes;
  for (const gate::Probe& probe : evidence.probes) {
    if (probe.log.provenance.arm == arm) probes.push_back(probe);
  }
  return probes;
}

void CheckArm(const std::string& file, const std::string& arm,
              const std::vector<std::string>& arms) {
  if (std::ranges::count(arms, arm) != 0) return;
  ThrowError(ErrorKind::kConfig,
             "{}: it is of arm `{}`, but the arms it could judge are {}. Leave "
             "it out, or "
             "give the logs of its arm.{}",
             file, arm, fmt::join(arms, ", "), DidYouMean(arm, arms));
}

/// The gate reads only one ensemble of an arm, and only of one kind.
void CheckEnsembles(const std::vector<gate::NullEnsemble>& ensembles,
                    compare::Question question) {
  using runlog::EnsembleKind;
  const bool regression = question == compare::Question::kRegression;
  const EnsembleKind needed =
      regression ? EnsembleKind::kBenign : EnsembleKind::kSeeds;
  std::map<std::string, std::string> files;  // by arm
  for (const gate::NullEnsemble& given : ensembles) {
    const bool foreign =
        !given.ensemble.provenance.Knows(runlog::Fact::kExperiment);
    if (foreign && !regression) {
      ThrowError(ErrorKind::kConfig,
                 "{}: it holds good runs of one arm, but the question is {}, "
                 "which the seeds of both arms answer. Give the candidate's "
                 "logs alone, or with --against, to hold them against the good "
                 "runs.",
                 given.file, gate::QuestionName(question));
    }
    if (given.ensemble.kind != needed) {
      ThrowError(ErrorKind::kConfig,
                 "{}: it is an ensemble of kind {}, but the question is {}, "
                 "which one of kind {} judges. Leave it out, or give the other "
                 "kind{}.",
                 given.file, EnsembleKindName(given.ensemble.kind),
                 gate::QuestionName(question), EnsembleKindName(needed),
                 regression ? "" : " (regression: give --against)");
    }
    const std::string arm = foreign ? "" : given.ensemble.provenance.arm;
    const auto [other, is_first] = files.emplace(arm, given.file);
    if (is_first) continue;
    ThrowError(
        ErrorKind::kConfig,
        "{}: it is an ensemble of {}, and so is {}, but one judges "
        "an arm. Leave one of them out.",
        given.file,
        foreign ? "another program's runs" : fmt::format("arm `{}`", arm),
        other->second);
  }
}

}  // namespace

void ReadProbes(const std::vector<std::filesystem::path>& files,
                EvidenceFiles& evidence) {
  for (const std::filesystem::path& file : files) {
    evidence.probes.push_back(
        {Printable(file.string()), OnOneLine(runlog::ReadProbeLog, file)});
  }
}

void ReadEnsembles(const std::vector<std::filesystem::path>& files,
                   EvidenceFiles& evidence) {
  for (const std::filesystem::path& file : files) {
    evidence.ensembles.push_back(
        {Printable(file.string()), OnOneLine(runlog::ReadEnsemble, file)});
  }
}

void CheckEvidenceIsUsed(const EvidenceFiles& evidence,
                         compare::Question question,
                         const std::vector<std::string>& candidates,
                         const std::string& baseline_arm) {
  std::vector<std::string> arms = candidates;
  if (!baseline_arm.empty()) arms.push_back(baseline_arm);
  for (const gate::Probe& probe : evidence.probes) {
    CheckArm(probe.file, probe.log.provenance.arm, arms);
  }
  CheckEnsembles(evidence.ensembles, question);
  for (const gate::NullEnsemble& given : evidence.ensembles) {
    if (!given.ensemble.provenance.Knows(runlog::Fact::kExperiment))
      continue;  // it may judge any arm
    CheckArm(given.file, given.ensemble.provenance.arm, candidates);
  }
}

const gate::NullEnsemble* EnsembleOf(const EvidenceFiles& evidence,
                                     const std::string& arm,
                                     runlog::EnsembleKind kind) {
  const auto found = std::ranges::find_if(
      evidence.ensembles, [&](const gate::NullEnsemble& candidate) {
        const auto& provenance = candidate.ensemble.provenance;
        return candidate.ensemble.kind == kind &&
               (provenance.arm == arm ||
                !provenance.Knows(runlog::Fact::kExperiment));
      });
  return found == evidence.ensembles.end() ? nullptr : &*found;
}

gate::Judgement JudgeWith(const compare::Pairing& pairing,
                          const EvidenceFiles& evidence,
                          const gate::Policy& policy,
                          const gate::Controls* controls) {
  using runlog::EnsembleKind;
  const std::string& arm = pairing.candidate_arm;
  const std::vector<gate::Probe> candidate = ProbesOf(evidence, arm);
  const std::vector<gate::Probe> baseline =
      pairing.baseline_arm == arm ? std::vector<gate::Probe>()
                                  : ProbesOf(evidence, pairing.baseline_arm);
  std::optional<gate::Looks> looks;
  if (evidence.looks) looks = evidence.looks->At(policy);
  const auto gap = evidence.oracle_gaps.find(arm);
  return gate::Judge(
      {.pairing = &pairing,
       .candidate_probes = candidate,
       .baseline_probes = baseline,
       .oracle_gap = gap == evidence.oracle_gaps.end() ? "" : gap->second,
       .benign = EnsembleOf(evidence, arm, EnsembleKind::kBenign),
       .seeds = EnsembleOf(evidence, arm, EnsembleKind::kSeeds),
       .controls = controls,
       .looks = looks ? &*looks : nullptr,
       .sweep = evidence.sweep ? &*evidence.sweep : nullptr},
      policy);
}

}  // namespace isoloss::logs
