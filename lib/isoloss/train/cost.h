// Estimates the threads, memory, disk space and time that runs will take.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/base/job_pool.h"
#include "isoloss/train/runner.h"

namespace isoloss::train {

/// Returns the threads of an experiment, and how many of `runs` runs share
/// them. Processes of one job execute one run after the next, all in the same
/// order. A job of one process does so too, because MPI allows only one thread.
/// Processes that the launcher did not bind to processors of their own are
/// assumed to share the machine's.
Crew CrewFor(const Experiment& experiment, size_t runs);

/// Returns the bytes that a run takes of a device's memory, about.
double EstimatedDeviceBytes(const Experiment& experiment);

/// Returns an upper estimate, in bytes, of the logs of `runs` runs while they
/// are made.
size_t EstimatedLogBytes(const Experiment& experiment, size_t runs);

/// Returns the most bytes that the checkpoints of all runs take at one time.
double EstimatedCheckpointBytes(const Experiment& experiment, size_t runs);

double TokensPerStep(const Experiment& experiment);

/// Returns the floating-point operations of the products of one token, forward
/// and backward: 6 for each weight that it meets, and attention's.
double FlopsPerToken(const Experiment& experiment);

/// Returns how many of a model's values a token uses: all but those of routed
/// experts that it is not sent to.
double ActiveParameters(const model::ModelConfig& config);

/// Returns the bytes of memory that this machine has.
double MachineBytes();

/// Refuses an experiment that the machine's memory can't hold: it would end in
/// swapping or a kill.
/// Errors   ConfigError.
void CheckMemory(const Experiment& experiment, const Crew& crew);

/// Says how fast one thread trains.
struct MeasuredRate {
  double flops_per_second = 0;
  std::string how;  ///< what was measured, for people
};

/// Trains a few steps of `arm` on a single thread, on a batch so small that it
/// takes less than about a second. In place of a large model it trains a small
/// one with the arm's recipe. Leaves no files. A job of several processes must
/// not call it.
MeasuredRate MeasureRate(const Experiment& experiment, const Arm& arm);

/// Returns the seconds that a run takes on a single thread at a rate,
/// evaluations included.
double EstimatedThreadSeconds(const Experiment& experiment,
                              double flops_per_second);

/// Returns the seconds that `runs` take with an even share of the threads, by
/// the rate of each run's arm, evaluations included.
double EstimatedSeconds(const Experiment& experiment,
                        const std::vector<Run>& runs,
                        const std::vector<double>& flops_per_second);

}  // namespace isoloss::train
