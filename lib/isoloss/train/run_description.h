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

/// What runs of one configuration share, 16 hexadecimal digits.
std::string ConfigDigest(const Experiment& experiment);

/// Everything but `complete` and the digest of the final weights. Collective
/// over the mesh. `initial`: the weights before step 1; `recipe` is the arm's;
/// `replay` may be null.
runlog::Provenance DescribeRun(const Experiment& experiment, const Arm& arm,
                               uint64_t seed, const corpus::Corpus& corpus,
                               const model::ParameterSet& initial,
                               const precision::ResolvedRecipe& recipe,
                               const RoutingReplay* replay, int workers,
                               expert_parallel::Mesh& mesh);

/// The model's graph, with what the arm's recipe gives each GEMM.
runlog::ModelGraph DescribeModel(const Experiment& experiment, const Arm& arm);

/// The part of it that needs no model: what RunDifference and LogDifference
/// look at, but for the initial weights and replayed ids.
runlog::Provenance DescribePlannedRun(const Experiment& experiment,
                                      const Arm& arm, uint64_t seed,
                                      const corpus::Corpus& corpus);

/// Who chooses the experts, with the digest of replayed ids; `replay` may be
/// null.
std::string DescribeRouting(const Experiment& experiment,
                            const RoutingReplay* replay);

/// What keeps `now` from going on with the run that `before` describes, one
/// line for each difference: "data.sequence_length: 128 before, 256 now". ""
/// if their bits are the same and the gate takes them for runs of one
/// experiment (name, first arm). How a run is executed, and what of it is
/// logged, makes no difference; nor does what `now` leaves empty.
std::string RunDifference(const runlog::Provenance& before,
                          const runlog::Provenance& now);

/// The same for what of the run is logged: rows of one log have the same
/// columns.
std::string LogDifference(const runlog::Provenance& before,
                          const runlog::Provenance& now);

/// What keeps a finished log from being that of the run that `now` describes
/// and whose log has all that is asked for: RunDifference, LogDifference, and
/// tensors to dump.
std::string FinishedDifference(const runlog::Provenance& before,
                               const runlog::Provenance& now);

}  // namespace isoloss::train
