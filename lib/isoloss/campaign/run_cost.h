// What training and probing runs will take, for people.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "isoloss/base/job_pool.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::campaign {

/// "12 KiB", "3 MiB", "1.5 GiB".
std::string SizeText(double bytes);

/// The first run of each arm: the others differ by their seeds alone.
std::vector<train::Run> OneOfEachArm(const std::vector<train::Run>& runs);

/// How fast each arm trains here and now, by its name.
using ArmRates = std::map<std::string, train::MeasuredRate>;

/// Trains a few steps of each arm of `runs` (train::MeasureRate). Not for one
/// of several processes of a job.
ArmRates MeasureArms(const train::Experiment& experiment,
                     const std::vector<train::Run>& runs);

/// "3 steps of 128 tokens of this model: bf16 7.1 GFLOP/s, mxfp8 4.2 GFLOP/s".
std::string RatesText(const ArmRates& rates);

/// Seconds that a run takes on one thread.
double ThreadSeconds(const train::Experiment& experiment, const train::Run& run,
                     const ArmRates& rates);

/// Seconds that `runs` take.
double TrainingSeconds(const train::Experiment& experiment,
                       const std::vector<train::Run>& runs,
                       const ArmRates& rates);

// The oracle of `verify` checks every tensor of a few steps of each candidate.

/// Of each of its cases, the fewest that a verdict takes.
inline constexpr int64_t kProbedSteps = 2;
/// One of them takes about so many times a step of training
/// (docs/performance.md).
inline constexpr int64_t kOracleStepCost = 35;

/// Steps that it takes for so many candidates and cases. Roughly: a few cases
/// take other numbers of steps, of which less is checked.
size_t OracleSteps(size_t candidates, size_t cases);

// What `runs` take, all of which are trained.

/// "at least 60 MiB, 30 MiB a run".
std::string MemoryText(const train::Experiment& experiment,
                       const std::vector<train::Run>& runs);
/// "at most 9 MiB of logs, and 12 MiB of checkpoints while they run".
std::string DiskText(const train::Experiment& experiment,
                     const std::vector<train::Run>& runs);

}  // namespace isoloss::campaign
