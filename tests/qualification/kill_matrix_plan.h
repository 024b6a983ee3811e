// From what a kill matrix is asked to its plan, and what it measures.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/campaign/experiment_source.h"
#include "qualification/kill_matrix_run.h"

namespace isoloss::qualification {

struct KillMatrixRequest {
  campaign::ExperimentSource source = {};
  std::string arm = {};                      ///< as campaign::OneArm
  std::string reference = {};                ///< "": the question is regression
  std::vector<std::string> mutants = {"*"};  ///< patterns
  size_t seeds = 2;                          ///< from the experiment's first on
  size_t benign_runs = 0;
  std::filesystem::path policy = {};    ///< "": that of gate::Policy
  std::filesystem::path ensemble = {};  ///< "": none
  std::filesystem::path out = {};       ///< "": runs/<experiment name>-mutants
};

/// Errors   as ExperimentSource::Load, OneArm, ChosenMutants, RequireOtherArm,
///          RequireEnsemble, gate::ReadPolicy and runlog::ReadEnsemble.
KillMatrixPlan PlanKillMatrix(const KillMatrixRequest& request);

/// The mutants whose name matches one of `patterns`.
/// Errors   ConfigError if a pattern matches none.
std::vector<Mutant> ChosenMutants(const std::vector<std::string>& patterns);

/// Errors   ConfigError if the reference is the arm in which things are
///          planted.
void RequireOtherArm(const KillMatrixPlan& plan);

/// Without one most verdicts would be inconclusive, which count as alarms.
/// Errors   ConfigError if the plan has good runs and no ensemble.
void RequireEnsemble(const KillMatrixPlan& plan);

}  // namespace isoloss::qualification
