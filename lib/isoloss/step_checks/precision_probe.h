// Level L3 compares an arm's steps with those of a BF16 arm. Both have the same
// weights, batch, biases and routing in each step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/step_checks/step_record.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/trainer.h"

namespace isoloss::step_checks {

/// Groups have this many rows if a tensor names none; those of experts name
/// theirs.
inline constexpr size_t kGroupRows = 32;

/// Compares two tensors of equal shape; the caller sets step and tensor.
/// relative_error   ||c - r|| / ||r||; 0 if both are zero, infinite if only the
///                  reference is, NaN if an element of one is not finite
/// gain             <c, r> / <r, r> - 1, NaN where r is zero
/// worst_group_error   largest relative error of a group of rows; groups of
///                  which both are zero count nothing
/// saturated, underflows   of the candidate as its GEMM quantises it along
///                  rows, or down columns if it does only that; NaN if neither
/// Errors   ShapeError if extents or groups differ.
runlog::PrecisionRow CompareTensors(const RecordedTensor& candidate,
                                    const RecordedTensor& reference);

struct PrecisionFindings {
  std::vector<std::string> tensors;  ///< rows give a place here
  runlog::PrecisionColumns precision;
  runlog::RoutingFlipColumns routing_flips;
};

/// Throws what ProbePrecision would throw before it trains anything.
void CheckReference(const train::Experiment& experiment,
                    const train::Arm& reference,
                    std::span<const int64_t> steps);

/// Trains `reference`, whose recipe must not quantise, with `seed` up to the
/// last of `steps` (from 1, ascending). Before each of them the candidate gets
/// its weights and biases. Both compute the forward and backward pass of the
/// same batch, with the experts that the reference chose, and each tensor is
/// compared.
///
/// The candidate's results have no effect on later steps, so neither errors nor
/// chaos accumulate. Each step is a sample of its own, and so is each seed.
///
/// `hooks` are the candidate's: its transport, and what is done to gradients.
/// Errors   ConfigError if steps do not ascend from 1 within the run, the
///          reference quantises, or the experiment replays a routing; as
///          train::TrainRun.
/// Cost     two steps for each of `steps`, one for each step before.
PrecisionFindings ProbePrecision(const train::Experiment& experiment,
                                 const train::Arm& candidate,
                                 const train::Arm& reference, uint64_t seed,
                                 const corpus::Corpus& corpus,
                                 std::span<const int64_t> steps,
                                 Executor& executor,
                                 const train::RunHooks& hooks = {});

}  // namespace isoloss::step_checks
