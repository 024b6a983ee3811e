// Tells people what training and probing runs will take.
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

/// Returns a text such as "12 KiB", "3 MiB" or "1.5 GiB".
std::string SizeText(double bytes);

/// Returns the first run of each arm. The remaining runs differ by their seeds
/// alone.
std::vector<train::Run> OneOfEachArm(const std::vector<train::Run>& runs);

/// Has the rate at which each arm trains here and now, by the arm's name.
using ArmRates = std::map<std::string, train::MeasuredRate>;

/// Trains a few steps of each arm of `runs` (train::MeasureRate). A process
/// that is one of several of a job must not call it.
ArmRates MeasureArms(const train::Experiment& experiment,
                     const std::vector<train::Run>& runs);

/// Returns "3 steps of 128 tokens of this model: bf16 7.1 GFLOP/s, mxfp8 4.2
/// GFLOP/s".
std::string RatesText(const ArmRates& rates);

/// Returns the seconds that a run takes on one thread.
double ThreadSeconds(const train::Experiment& experiment, const train::Run& run,
                     const ArmRates& rates);

/// Returns the seconds that `runs` take.
double TrainingSeconds(const train::Experiment& experiment,
                       const std::vector<train::Run>& runs,
                       const ArmRates& rates);

// The oracle of `verify` checks every tensor of a few steps of each candidate.

/// Each case of the oracle has this many steps, the fewest that a verdict
/// takes.
inline constexpr int64_t kProbedSteps = 2;
/// A step of the oracle takes about as long as this many steps of training
/// (docs/performance.md).
inline constexpr int64_t kOracleStepCost = 35;

/// Returns the oracle's steps for all candidates and cases. It is an estimate:
/// a few cases take other numbers of steps, of which less is checked.
size_t OracleSteps(size_t candidates, size_t cases);

// These texts assume that all of `runs` are trained.

/// Returns a text such as "at least 60 MiB, 30 MiB a run".
std::string MemoryText(const train::Experiment& experiment,
                       const std::vector<train::Run>& runs);
/// Returns a text such as "at most 9 MiB of logs, and 12 MiB of checkpoints
/// while they run".
std::string DiskText(const train::Experiment& experiment,
                     const std::vector<train::Run>& runs);

}  // namespace isoloss::campaign
