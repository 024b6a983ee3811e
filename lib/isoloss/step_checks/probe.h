// Probes an arm: it runs the arm's first steps on structured inputs, and the
// oracle verifies every tensor.
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

namespace isoloss::step_checks {

/// Trains as train::TrainRun does, without files.
using TrainFunction = std::function<runlog::RunLog(
    const train::Experiment& experiment, const train::Arm& arm, uint64_t seed,
    const corpus::Corpus& corpus, Executor& executor,
    const train::RunHooks& hooks)>;

struct ProbeOptions {
  /// Each case runs this many steps from the first one, at most train.steps. A
  /// state that is one step old shows from step 2 on.
  int64_t steps = 3;
  /// Case `plain` runs this many steps if they are more. The first steps need
  /// not show what makes two runs differ, nor an error that this difference
  /// hides.
  int64_t plain_steps = 0;
  /// Looks at all elements of each tensor, even of large steps (sampling.h).
  bool full = false;
  /// Cases that only check the exchange have this many steps.
  int64_t exchange_steps = 32;
  /// They are names of ProbeCases; empty means all.
  std::vector<std::string> cases = {};
  /// The run's own hooks are called before the probe looks.
  train::RunHooks hooks = {};
  /// Makes hooks anew for each case, whose experiment may have other sizes, and
  /// for the candidate of the reference. If it is empty, `hooks` are used; if
  /// not, only hooks.stop of them.
  std::function<train::RunHooks(const train::Experiment& experiment,
                                const train::Arm& arm, uint64_t seed)>
      make_hooks = {};
  /// Trains the runs; train::TrainRun does if it is empty. The oracle still
  /// compares the run with the experiment and the arm that ProbeArm was given.
  TrainFunction train = {};
  /// The arm is also compared with this one (oracle/precision_probe.h), at
  /// these steps.
  const train::Arm* reference = nullptr;
  std::vector<int64_t> reference_steps = {1, 2, 3};
  /// The probe calls it before each step is checked, and before the reference
  /// is trained (case "reference", step 0).
  std::function<void(const std::string& probe_case, int64_t step)> on_step = {};
};

/// Returns how many steps a case needs to look at all phases of an arm; 0 if it
/// has one.
int64_t StepsOfPhases(const train::Arm& arm);

/// An arm with several recipes has each but the last for
/// runlog::kProbedStepsOfPhase steps in all cases but `plain`, which run for as
/// many steps more as that needs. Each step's batch is computed in one share,
/// whatever parallel.micro_batches says (train/batch_shares.h).
///
/// Returns the oracle's rows of all cases and steps, and what the reference
/// shows. The log is complete if no case ended by its numbers or before its
/// last step. One process holds all ranks: results of further processes count
/// as not announced.
/// Errors   ConfigError for an unknown case, no steps, or if `corpus` or an arm
///          do not fit the experiment; as ProbePrecision.
/// Exact    rows depend on the experiment, the arm, the seed, the corpus and
///          what `hooks` do; not on the executor. So do samples.
/// Cost     memory: EstimatedProbeBytes, and 8 bytes a token of the corpus.
runlog::ProbeLog ProbeArm(const train::Experiment& experiment,
                          const train::Arm& arm, uint64_t seed,
                          const corpus::Corpus& corpus, Executor& executor,
                          const ProbeOptions& options = {});

}  // namespace isoloss::step_checks
