// The oracle of what the log says of a step: counts, digests and statistics,
// each computed again from the tensors and routings that the step announced.
#pragma once

#include "isoloss/oracle/report_sink.h"
#include "isoloss/oracle/step_inputs.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::oracle {

/// Where names of what CheckLog compares begin: "log./moe/routing_digest".
inline constexpr const char* kLogPrefix = "log.";

/// Compares the rows that a step of one process gave the log with what follows
/// from `inputs`: tokens and batch, experts' loads and routing, norms of
/// parameters, bytes and rows between ranks, digests and statistics of tensors.
/// Integers and digests must be equal and no digest 0; real numbers agree to
/// 1e-9 of what they are sums of. A column without values is not compared.
void CheckLog(const StepInputs& inputs, const runlog::RunLog& rows,
              ReportSink& sink);

/// The part of /tensors.
void CheckLoggedTensors(const StepInputs& inputs,
                        const runlog::TensorColumns& tensors, ReportSink& sink);

/// What the step's exchanges move, there and back and in both passes, by the
/// routing, the mesh and the payloads.
ExchangeBytes CountExchangeBytes(const StepInputs& inputs);

/// The part of /exchange.
void CheckLoggedExchange(const StepInputs& inputs,
                         const runlog::ExchangeColumns& exchange,
                         ReportSink& sink);

}  // namespace isoloss::oracle
