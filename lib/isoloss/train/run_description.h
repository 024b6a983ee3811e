// Describes a run for its log, and decides whether a later execution is the
// same run.
#pragma once

#include <cstdint>
#include <string>

#include "isoloss/corpus/corpus.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/parameters.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/routing_replay.h"

namespace isoloss::train {

/// Returns a digest of what runs of one configuration share, 16 hexadecimal
/// digits.
std::string ConfigDigest(const Experiment& experiment);

/// Describes everything except `complete` and the digest of the final weights.
/// Collective over the mesh. `initial` are the weights before step 1; `recipe`
/// is the arm's; `replay` may be null.
/// Errors   ConfigError if the executor's device does not compute the bits of
///          the host.
runlog::Provenance DescribeRun(const Experiment& experiment, const Arm& arm,
                               uint64_t seed, const corpus::Corpus& corpus,
                               const model::ParameterSet& initial,
                               const RoutingReplay* replay, Executor& executor,
                               expert_parallel::Mesh& mesh);

/// Returns the model's graph, with what the arm's recipe gives each GEMM.
runlog::ModelGraph DescribeModel(const Experiment& experiment, const Arm& arm);

/// Returns the part of DescribeRun that needs no model. RunDifference and
/// LogDifference compare this part, the initial weights and replayed ids.
runlog::Provenance DescribePlannedRun(const Experiment& experiment,
                                      const Arm& arm, uint64_t seed,
                                      const corpus::Corpus& corpus);

/// Says who chooses the experts, with the digest of replayed ids; `replay` may
/// be null.
std::string DescribeRouting(const Experiment& experiment,
                            const RoutingReplay* replay);

/// Says why `now` can't go on with the run that `before` describes, one line
/// for each difference: "data.sequence_length: 128 before, 256 now". "" if
/// their bits are the same and the gate takes them for runs of one experiment
/// (name, first arm). The way in which a run is executed or logged makes no
/// difference; nor do values that `now` leaves empty.
std::string RunDifference(const runlog::Provenance& before,
                          const runlog::Provenance& now);

/// Does the same for what is logged of the run: rows of one log have the same
/// columns.
std::string LogDifference(const runlog::Provenance& before,
                          const runlog::Provenance& now);

/// Says why a finished log can't stand for the run that `now` describes, with
/// all that should be logged: RunDifference, LogDifference, and tensors to
/// dump.
std::string FinishedDifference(const runlog::Provenance& before,
                               const runlog::Provenance& now);

}  // namespace isoloss::train
