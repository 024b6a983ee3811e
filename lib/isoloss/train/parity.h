// Checks whether a run on many ranks is the run on one rank. It compares them
// step by step, to the bit, and names the first difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "isoloss/base/executor.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/trainer.h"

namespace isoloss::train {

/// Describes a difference. The values of a tensor are its norms, which tell a
/// lost factor (0.5, 8) from a wrong element; equal norms are possible.
struct ParityDifference {
  int64_t step = 0;
  std::string what;  ///< "gradient of layers.1.moe.router.gate.weight", …
  bool of_tensor = false;
  double one_rank = 0;
  double meshed = 0;
  size_t process = 0;  ///< whose values they are

  /// Returns "gradient of layers.1.moe.router.gate.weight at step 1: norm
  /// 0.5000 x that of one rank".
  std::string Describe() const;
};

struct ParityReport {
  std::string arm;
  uint64_t seed = 0;
  size_t ranks = 1;
  size_t replicas = 1;
  std::string transport;
  size_t processes = 1;
  int64_t steps = 0;     ///< that both runs have and that were compared
  size_t gradients = 0;  ///< tensors compared in each of them
  bool interrupted = false;
  /// The first difference in the order of computation: tokens per expert, loss,
  /// gradients from the head down, their norm, expert biases, weights after the
  /// last step.
  std::optional<ParityDifference> first;

  bool passed() const { return !first && steps > 0 && !interrupted; }
  /// Returns three or four lines: PASS or FAIL, the finding, and its evidence.
  std::string Verdict() const;
};

/// Trains `arm` for the first `steps` steps of its run, once with one rank and
/// once with the experiment's mesh. Both runs have the arm's exchange: flat and
/// titan_bf16 do not depend on the ranks, with any payload. `hooks` are those
/// of the run on the mesh; both runs start from the same edited weights. If
/// several processes share the ranks, each calls it and gets the same `first`,
/// except for tokens and biases, which every process compares for itself.
/// Errors   as TrainRun; ConfigError if the mesh has one rank, or if the
///          exchange is hierarchical: then bits depend on the ranks by design.
/// Cost     two runs; each process keeps `steps` copies of all gradients.
ParityReport CompareWithOneRank(const Experiment& experiment, const Arm& arm,
                                uint64_t seed, const corpus::Corpus& corpus,
                                Executor& executor, int64_t steps,
                                const RunHooks& hooks = {});

}  // namespace isoloss::train
