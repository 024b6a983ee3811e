// What the exchange did in a step, as columns of the run log.
#pragma once

#include <cstdint>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/transformer.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::train {

/// Appends the routing of the last Forward to `moe`; expert ids of all
/// processes too if `with_ids`. Collective.
/// Shapes   expert_bias [MoE layers, E], after the step's update.
void RecordMoe(int64_t step, const model::Transformer& transformer,
               MatrixView<const float> expert_bias, bool with_ids,
               expert_parallel::Mesh& mesh, runlog::MoeColumns& moe);

/// Appends what the transport counted since the last call, over all processes;
/// nothing in a local mesh. Collective; only process 0's columns are whole.
void RecordExchange(int64_t step, const model::Transformer& transformer,
                    expert_parallel::Mesh& mesh,
                    runlog::ExchangeColumns& exchange);

}  // namespace isoloss::train
