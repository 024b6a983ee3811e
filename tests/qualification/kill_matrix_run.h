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

#include "isoloss/corpus/corpus.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/policy.h"
#include "isoloss/train/experiment.h"
#include "qualification/kill_matrix.h"
#include "qualification/mutant.h"

namespace isoloss::qualification {

struct KillMatrixPlan {
  train::Experiment experiment;
  train::Arm arm;  ///< in which things are planted
  /// Question precision: the arm that it is compared with. Without one the
  /// question is regression: against the unchanged run of `arm`.
  std::optional<train::Arm> reference;
  std::vector<uint64_t> seeds;  ///< of each mutant
  std::vector<Mutant> mutants;
  size_t benign_runs = 0;  ///< ensembles::MakeBenignVariant; seeds in turn
  gate::Policy policy;     ///< its question fits `reference`
  /// Of benign runs or, with a reference, of seeds.
  std::optional<gate::NullEnsemble> ensemble;
  std::filesystem::path folder;  ///< keeps finished cells
  int workers = 0;

  /// That runs are compared with.
  const train::Arm& BaselineArm() const { return reference ? *reference : arm; }
};

struct KillMatrixResult {
  KillMatrix matrix = {};
  bool interrupted = false;
};

/// Computes the cells that `plan.folder` does not hold yet, then the matrix.
/// Errors   as train::TrainRun for the unchanged runs; IoError; FormatError if
///          a kept cell is damaged; ConfigError if the folder holds cells of
///          another plan. What a planted bug makes the program throw is a
///          catch.
KillMatrixResult RunKillMatrix(const KillMatrixPlan& plan,
                               const std::atomic<bool>& stop);

/// Writes kill_matrix.json into the plan's folder.
/// Errors   IoError.
void WriteKillMatrix(const KillMatrixPlan& plan, const KillMatrix& matrix);

}  // namespace isoloss::qualification
