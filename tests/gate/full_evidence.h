// Runs and evidence that have every column of their logs.
#pragma once

#include <vector>

#include "judged_runs.h"
#include "sample_evidence.h"
#include "support/full_columns.h"

namespace isoloss::gate {

/// An experiment that passes, whose logs have every column.
inline Runs FullRuns() {
  Runs runs = HealthyRuns();
  for (auto& run : runs) {
    test_support::FillColumns(run.log);
  }
  return runs;
}

/// A regression with a probe that has every column and two ensembles.
struct FullEvidence {
  TwoVersions versions{4};
  std::vector<Probe> probes;
  NullEnsemble benign = BenignEnsemble(20);
  NullEnsemble seeds = SeedsEnsemble(12);

  FullEvidence() { probes.push_back(PrecisionProbe(versions.now[0])); }

  Judgement Judged() const {
    const compare::Pairing pairing = versions.Pair();
    return Judge({.pairing = &pairing,
                  .candidate_probes = probes,
                  .benign = &benign,
                  .seeds = &seeds},
                 Regression());
  }
};

}  // namespace isoloss::gate
