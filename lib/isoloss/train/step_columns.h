// Adds a step's values to the columns of the run log.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/transformer.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::train {

/// Digests the tokens and labels of a whole batch; equal data have equal
/// digests.
int64_t BatchDigest(const corpus::Batch& batch);

/// Appends the routing of the last Forward to `moe`. With `with_ids` it appends
/// the expert ids of all processes, and flips if a log is replayed. Collective.
/// Shapes   expert_bias [MoE layers, E], after the step's update.
void RecordMoe(int64_t step, const model::Transformer& transformer,
               MatrixView<const float> expert_bias, bool with_ids,
               bool with_flips, expert_parallel::Mesh& mesh,
               runlog::MoeColumns& moe);

/// Appends what the transport counted since the last call, over all processes;
/// nothing in a local mesh. Collective; only process 0's columns are whole.
/// Bytes between two ranks are added to `bytes_by_pair` [V, V], not to the log.
void RecordExchange(int64_t step, const model::Transformer& transformer,
                    expert_parallel::Mesh& mesh,
                    std::vector<int64_t>& bytes_by_pair,
                    runlog::ExchangeColumns& exchange);

/// Appends the gradient norm and the update ratio of each parameter.
/// Shapes   gradient_squares, update_ratios: one value for each parameter.
void RecordParameters(int64_t step, const model::ParameterSet& parameters,
                      std::span<const double> gradient_squares,
                      std::span<const double> update_ratios,
                      runlog::ParameterColumns& columns);

/// Returns row `index` of every column; zero in a column that is shorter.
runlog::StepRow RowAt(const runlog::StepColumns& steps, size_t index);
/// Returns the last row of every column.
runlog::StepRow LastRow(const runlog::StepColumns& steps);

/// Returns the busiest expert's tokens over the mean of its layer, in the worst
/// layer; NaN without experts.
/// Shapes   tokens_per_expert [MoE layers, E].
double LoadMaxOverMean(MatrixView<const int64_t> tokens_per_expert);
/// Returns the number of experts without a token, over all layers.
int64_t DeadExperts(MatrixView<const int64_t> tokens_per_expert);

}  // namespace isoloss::train
