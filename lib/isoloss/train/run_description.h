// What a log says of its run, and whether a later execution is the same run.
#pragma once

#include <cstdint>
#include <string>

#include "isoloss/base/threads.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/transformer.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/routing_replay.h"

namespace isoloss::train {

/// Everything but `complete` and the digest of the final weights. Collective
/// over the mesh. `initial`: the weights before step 1; `replay` may be null.
runlog::Provenance DescribeRun(const Experiment& experiment, const Arm& arm,
                               uint64_t seed, const corpus::Corpus& corpus,
                               const model::Transformer& transformer,
                               const model::ParameterSet& initial,
                               const RoutingReplay* replay, ThreadTeam& team,
                               expert_parallel::Mesh& mesh);

/// What keeps `now` from going on with the run that `before` describes, one
/// line for each difference: "data.sequence_length: 128 before, 256 now". ""
/// if their bits are the same. How a run is executed, and what of it is logged,
/// makes no difference.
std::string RunDifference(const runlog::Provenance& before,
                          const runlog::Provenance& now);

}  // namespace isoloss::train
