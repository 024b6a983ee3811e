// A run log in the forms in which training programs leave their own: what
// reads those reads a run of isoloss, too.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/runlog/run_log.h"

namespace isoloss::foreign {

/// All have the losses, gradient norms and speeds of the steps, and the
/// held-out losses; all but the last the learning rates. Columns that the log
/// lacks are left out. Steps are optimizer steps, from 1; an evaluation before
/// the first update has step 0.
enum class RunForm {
  /// Event file with torchtitan's tags. Values are rounded to FP32, 24 bits.
  kTensorBoard,
  /// CSV with W&B's `_step`, `_timestamp` and `_runtime`, torchtitan's tags,
  /// and
  /// the step once more as `trainer/global_step`. Values read back to the same
  /// bits; a step without a value has an empty cell. NaN and infinities
  /// are NaN, Infinity and -Infinity.
  kWandbCsv,
  /// The same as JSON lines, keys without a value left out; NaN and infinities
  /// are strings.
  kWandbJsonl,
  /// torchtitan's lines. Losses have 5 decimals (held-out ones 4), gradient
  /// norms 4, tokens per second none. No learning rates, no memory.
  kTorchtitan,
};

/// "log", "csv", "jsonl", or for kTensorBoard "".
const char* ExtensionOf(RunForm form);

/// Seconds since 1970 of the log's first event, 0 if it has none.
double StartOf(const runlog::RunLog& log);

/// The content of the file, which depends on the log only.
///
/// Units    A step's time is StartOf() and the step_seconds up to its end, in
///          seconds since 1970; kTorchtitan writes it as UTC. What passed
///          between steps (evaluations, interruptions) is not in it.
/// Special  A step_seconds that is not finite or is negative counts as 0.
/// Source   pytorch/torchtitan, components/metrics.py (tags, lines).
std::string RunText(const runlog::RunLog& log, RunForm form);

}  // namespace isoloss::foreign
