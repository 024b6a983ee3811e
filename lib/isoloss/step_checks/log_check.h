// Verifies what the log says of a step. Counts, digests and statistics are
// computed again from the tensors and routings that the step announced.
#pragma once

#include <cstddef>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "isoloss/step_checks/report_sink.h"
#include "isoloss/step_checks/step_inputs.h"

namespace isoloss::step_checks {

/// Compares the log's rows of a step of one process with what follows from
/// `inputs`. They hold tokens and batch, experts' loads and routing, norms of
/// parameters, bytes and rows between ranks, digests and statistics of tensors.
/// Integers and digests must be equal and no digest 0. Real numbers agree to
/// 1e-9 of their summands. A column without values is not compared. `rows` must
/// stay valid.
void AddLogParts(const StepInputs& inputs, const runlog::RunLog& rows,
                 std::vector<CheckPart>& parts);

/// A sample has the statistics of the tensors that so many draws hit, since
/// they cost far more than all else of a log, which is always compared.
inline constexpr size_t kStatisticsDraws = 64;

/// Does this for the columns of /tensors.
void AddLoggedTensorParts(const StepInputs& inputs,
                          const runlog::TensorColumns& tensors,
                          std::vector<CheckPart>& parts);

/// Returns what the step's exchanges move, there and back and in both passes.
/// It follows from the routing, the mesh and the payloads.
ExchangeBytes CountExchangeBytes(const StepInputs& inputs);

/// Does this for the columns of /exchange.
void CheckLoggedExchange(const StepInputs& inputs,
                         const runlog::ExchangeColumns& exchange,
                         ReportSink& sink);

}  // namespace isoloss::step_checks
