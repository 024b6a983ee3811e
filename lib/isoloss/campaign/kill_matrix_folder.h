// The folder of a kill matrix: its plan, its finished cells, its results.
#pragma once

#include <string>

#include "isoloss/campaign/kill_matrix_run.h"
#include "isoloss/gate/kill_matrix.h"

namespace isoloss::campaign {

/// Writes the plan of `matrix` where no cells are yet.
/// Errors   ConfigError if the folder holds cells of another plan, or results
///          of none; IoError.
void PrepareKillMatrixFolder(const KillMatrixPlan& matrix);

/// Writes kill_matrix.json, kill_matrix.svg and, if the matrix measures the
/// gate (MeasuresTheGate), power.json. Says which, for a message.
/// Errors   IoError.
std::string WriteKillMatrix(const KillMatrixPlan& plan,
                            const gate::KillMatrix& matrix);

}  // namespace isoloss::campaign
