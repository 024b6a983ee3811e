// Probes an arm: runs its first steps on structured inputs and has the oracle
// check every tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/trainer.h"

namespace isoloss::oracle {

/// As train::TrainRun, without files.
using TrainFunction = std::function<runlog::RunLog(
    const train::Experiment& experiment, const train::Arm& arm, uint64_t seed,
    const corpus::Corpus& corpus, Executor& executor,
    const train::RunHooks& hooks)>;

struct ProbeOptions {
  /// Steps of each case, from the first one; at most train.steps. A state that
  /// is one step old shows from step 2 on.
  int64_t steps = 3;
  /// Of case `plain`, if more: what makes two runs part, and what hides behind
  /// that, need not show in the first ones.
  int64_t plain_steps = 0;
  /// Of cases that check the exchange alone.
  int64_t exchange_steps = 32;
  /// Names of ProbeCases; empty: all.
  std::vector<std::string> cases = {};
  /// The run's own hooks, called before the probe looks.
  train::RunHooks hooks = {};
  /// Makes them anew for each case, whose experiment may have other sizes, and
  /// for the reference's candidate; empty: `hooks`. Only hooks.stop counts
  /// besides.
  std::function<train::RunHooks(const train::Experiment& experiment,
                                const train::Arm& arm, uint64_t seed)>
      make_hooks = {};
  /// What trains; empty: train::TrainRun. The oracle still checks it against
  /// the experiment and the arm that ProbeArm was given.
  TrainFunction train = {};
  /// Compares with this arm too (oracle/precision_probe.h), at these steps.
  const train::Arm* reference = nullptr;
  std::vector<int64_t> reference_steps = {1, 2, 3};
  /// Before each step is checked, and before the reference is trained (case
  /// "reference", step 0).
  std::function<void(const std::string& probe_case, int64_t step)> on_step = {};
};

/// The oracle's rows of all cases and steps, and what the reference shows. The
/// log is complete if no case was ended by its numbers or before its last step.
/// One process holds all ranks: what others compute counts as not announced.
/// Errors   ConfigError for an unknown case, no steps, or if `corpus` or an arm
///          do not fit the experiment; as ProbePrecision.
/// Exact    rows depend on the experiment, the arm, the seed, the corpus and
///          what `hooks` do; not on the executor.
/// Cost     memory: all tensors of one step, and 8 bytes a token of the corpus.
runlog::ProbeLog ProbeArm(const train::Experiment& experiment,
                          const train::Arm& arm, uint64_t seed,
                          const corpus::Corpus& corpus, Executor& executor,
                          const ProbeOptions& options = {});

}  // namespace isoloss::oracle
