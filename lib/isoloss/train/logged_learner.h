// Computes the steps of a run: a Learner on the run's batches, and the rows of
// the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/tokens.h"
#include "isoloss/probes/nonfinite.h"
#include "isoloss/probes/tensor_probe.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/learner.h"
#include "isoloss/train/routing_replay.h"
#include "isoloss/train/run_hooks.h"

namespace isoloss::train {

/// Trains one arm with one seed. All processes of the mesh must call every
/// method at the same point.
class LoggedLearner {
 public:
  /// Prepares the first step. Only `mesh`, `executor`, `hooks` and `experiment`
  /// must stay valid.
  /// Errors   as TrainRun.
  LoggedLearner(const Experiment& experiment, const Arm& arm, uint64_t seed,
                const corpus::Corpus& corpus, Executor& executor,
                const RunHooks& hooks, probes::ProbeOptions probe,
                expert_parallel::Mesh& mesh);

  /// Returns the log's description of this run (DescribeRun).
  const runlog::Provenance& provenance() const { return provenance_; }

  /// Runs Learner::Step on the step's batch. Adds the step to `rows`. Returns
  /// false if the loss or the gradient norm is not finite.
  bool Step(int64_t step, runlog::RunLog& rows);
  /// Computes a step that was not finite once more. Returns the tensors that
  /// are not finite, in the order of computation.
  std::vector<probes::NonFinite> LocateNonFinite(int64_t step);
  /// Computes the held-out loss of each sequence and their mean.
  void Evaluate(int64_t step, runlog::EvalColumns& eval);

  /// Does the same as Learner's functions.
  void Load(const checkpoint::Checkpoint& checkpoint) {
    learner_.Load(checkpoint, bytes_by_pair_);
  }
  void GoOnFrom(const TrainingState& other) { learner_.GoOnFrom(other); }
  TrainingState State() { return learner_.State(bytes_by_pair_); }

  uint64_t WeightsDigest();
  /// Returns the bytes between each two ranks since step 1, [V, V]; empty if no
  /// rows travel.
  const std::vector<int64_t>& bytes_by_pair() const { return bytes_by_pair_; }
  const probes::TensorProbe& probe() const { return probe_; }

 private:
  void SetRouting(const Experiment& experiment);
  void CheckAgreement(const Experiment& experiment, const Arm& arm,
                      const corpus::Corpus& corpus);
  void CheckListeners(const Experiment& experiment);
  void CheckPatterns(const Experiment& experiment);
  /// Returns this process's part of the current batch.
  model::TokenBatch Part();
  model::TokenBatch Begin(int64_t step);

  const model::ModelConfig& config_;
  const TrainConfig& train_;
  const LogConfig& log_config_;
  const uint64_t seed_;
  Executor& executor_;
  const RunHooks& hooks_;
  expert_parallel::Mesh& mesh_;
  corpus::Batches batches_;
  corpus::Batch batch_;  // of all processes
  ShareEnds part_ends_;
  std::optional<RoutingReplay> replay_;
  std::optional<ReplayedStep> replayed_step_;
  std::optional<model::ForcedBalance> forced_balance_;
  const model::RoutingSource* routing_ = nullptr;  // of training steps
  Learner learner_;
  std::vector<int64_t> bytes_by_pair_;
  probes::TensorProbe probe_;
  runlog::Provenance provenance_;
  struct PlannedGemms {
    int64_t first_step;  ///< of the phase
    int64_t quantized;   ///< in each of its steps
  };
  std::vector<PlannedGemms> planned_;
};

}  // namespace isoloss::train
