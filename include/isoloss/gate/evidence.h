// Defines the evidence that a verdict may rest on.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/controls.h"
#include "isoloss/gate/looks.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::runlog {
struct RateSweep;
}

namespace isoloss::gate {

/// Holds a probe log and the path of its file (may be empty).
struct Probe {
  std::string file;
  runlog::ProbeLog log;
};

/// Holds a null ensemble and the path of its file (may be empty).
struct NullEnsemble {
  std::string file;
  runlog::Ensemble ensemble;
};

/// Holds all that a level may read and points into its sources. Only the runs
/// are required; absent evidence is never taken for a pass.
struct Evidence {
  const compare::Pairing* pairing = nullptr;
  std::span<const Probe> candidate_probes = {};
  std::span<const Probe> baseline_probes = {};
  /// Says why the oracle can't probe the candidate, whose recipe has a part
  /// that the oracle does not know. Nobody has checked such a run. Empty if
  /// the oracle can probe it.
  std::string oracle_gap = {};
  const NullEnsemble* benign = nullptr;
  const NullEnsemble* seeds = nullptr;
  /// These arms are judged beside this one. They can keep a verdict from PASS.
  const Controls* controls = nullptr;
  /// Level L5 tests at the level of these looks; null stands for a first and
  /// only look.
  const Looks* looks = nullptr;
  /// The experiment has this sweep of learning rates; null: that of the
  /// baseline's logs counts.
  const runlog::RateSweep* sweep = nullptr;
};

/// Returns how findings call a piece of evidence: its file, or else its kind.
std::string Label(const Probe& probe);
std::string Label(const NullEnsemble& ensemble);

/// Says why a probe is no evidence for `runs` (one arm). Each entry names a
/// field, both values and the rule. Empty if the probe is evidence.
std::vector<std::string> Mismatches(
    const Probe& probe, const std::vector<const compare::Run*>& runs);

/// Says why an ensemble is no evidence for these arms. A benign ensemble must
/// hold runs of the baseline's numerics. A seeds ensemble must hold pairs of
/// the same recipes, with a reference that computes as the baseline does.
std::vector<std::string> Mismatches(const NullEnsemble& ensemble,
                                    runlog::EnsembleKind kind,
                                    const compare::Pairing& pairing);

}  // namespace isoloss::gate
