// Reads the evidence of a verdict besides runs: probes and null ensembles.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/judge.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/tuning.h"

namespace isoloss::logs {

/// These files may belong to any arms.
struct EvidenceFiles {
  std::vector<gate::Probe> probes;
  /// Says why the oracle can't probe an arm (step_checks::WhyNotUnderstood), by
  /// arm.
  std::map<std::string, std::string> oracle_gaps;
  std::vector<gate::NullEnsemble> ensembles;
  std::optional<gate::Looks> looks;  ///< at the seeds of the runs
  /// The experiment has this sweep; empty: that of the logs counts.
  std::optional<runlog::RateSweep> sweep;
};

/// Reads probe logs into `evidence`.
/// Errors   as runlog::ReadProbeLog.
void ReadProbes(const std::vector<std::filesystem::path>& files,
                EvidenceFiles& evidence);
/// Reads null ensembles into `evidence`.
/// Errors   as runlog::ReadEnsemble.
void ReadEnsembles(const std::vector<std::filesystem::path>& files,
                   EvidenceFiles& evidence);

/// Checks that each file is used, since a given file is never passed over.
/// Probes must be of arms that are judged or judged against. Ensembles must be
/// of judged arms, one for each, and of the kind that the question needs.
/// `baseline_arm` is "" if each arm is judged against its own earlier runs.
/// Errors   ConfigError that names the file.
void CheckEvidenceIsUsed(const EvidenceFiles& evidence,
                         compare::Question question,
                         const std::vector<std::string>& candidates,
                         const std::string& baseline_arm = "");

/// Returns the ensemble of a candidate arm; null if there is none.
const gate::NullEnsemble* EnsembleOf(const EvidenceFiles& evidence,
                                     const std::string& arm,
                                     runlog::EnsembleKind kind);

gate::Judgement JudgeWith(const compare::Pairing& pairing,
                          const EvidenceFiles& evidence,
                          const gate::Policy& policy,
                          const gate::Controls* controls = nullptr);

}  // namespace isoloss::logs
