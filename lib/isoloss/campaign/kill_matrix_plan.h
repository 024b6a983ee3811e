// What a kill matrix may be asked, and what it measures.
#pragma once

#include <string>
#include <vector>

#include "isoloss/campaign/kill_matrix_run.h"
#include "isoloss/gate/power_record.h"

namespace isoloss::campaign {

/// The mutants whose name matches one of `patterns`.
/// Errors   ConfigError if a pattern matches none.
std::vector<mutants::Mutant> ChosenMutants(
    const std::vector<std::string>& patterns);

/// Errors   ConfigError if the reference is the arm in which things are
///          planted.
void RequireOtherArm(const KillMatrixPlan& plan);

/// Without one most verdicts would be inconclusive, which count as alarms.
/// Errors   ConfigError if the plan has good runs and no ensemble.
void RequireEnsemble(const KillMatrixPlan& plan);

/// Whether its matrix measures the gate: that takes all mutants, and benign
/// runs.
bool MeasuresTheGate(const KillMatrixPlan& plan);

/// What verdicts of this gate may say of themselves from now on.
gate::PowerRecord PowerOf(const KillMatrixPlan& plan,
                          const gate::KillMatrix& matrix);

}  // namespace isoloss::campaign
