// From mutants and benign variants to the kill matrix: each is planted in a
// run and in its probe, and the gate judges what they leave on disk.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/campaign/run_list.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/kill_matrix.h"
#include "isoloss/gate/policy.h"
#include "isoloss/mutants/mutant.h"
#include "isoloss/train/experiment.h"

namespace isoloss::campaign {

struct KillMatrixPlan {
  train::Experiment experiment;
  train::Arm arm;  ///< in which things are planted
  /// Question precision: the arm that it is compared with. Without one the
  /// question is regression: against the unchanged run of `arm`.
  std::optional<train::Arm> reference;
  std::vector<uint64_t> seeds;  ///< of each mutant
  std::vector<mutants::Mutant> mutants;
  size_t benign_runs = 0;  ///< BenignVariant(0), (1), …; seeds in turn
  gate::Policy policy;     ///< its question fits `reference`
  /// Of benign runs or, with a reference, of seeds.
  std::optional<gate::NullEnsemble> ensemble;
  std::filesystem::path folder;  ///< keeps finished cells
  int workers = 0;

  /// That runs are compared with.
  const train::Arm& BaselineArm() const { return reference ? *reference : arm; }
};

struct KillMatrixResult {
  gate::KillMatrix matrix = {};
  bool interrupted = false;
};

/// Computes the cells that `plan.folder` does not hold yet, then the matrix.
/// Errors   as train::TrainRun for the unchanged runs; IoError; FormatError if
///          a kept cell is damaged; ConfigError if the folder holds cells of
///          another plan. What a planted bug makes the program throw is a
///          catch.
KillMatrixResult RunKillMatrix(const KillMatrixPlan& plan,
                               const std::atomic<bool>& stop);

/// What the matrix is made of: runs without a fault, then cells, which read
/// them. Measures how fast the arms train here.
RunList ListKillMatrix(const KillMatrixPlan& plan);

/// Computes those of the chosen that `plan.folder` does not hold yet, and what
/// they read. Returns whether all are there: not if `stop` became true.
/// Errors   as RunKillMatrix; ConfigError if there is no such run.
bool MakeChosenCells(const KillMatrixPlan& plan, const RunChoice& only,
                     const std::atomic<bool>& stop);

}  // namespace isoloss::campaign
