// Logs that are JSON: one object for a run, or one on each line.
#pragma once

#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Reads trainer_state.json of Hugging Face's Trainer, golden values of
/// Megatron-LM and Megatron-Bridge (all layouts since 2023), and MLPerf's
/// reference convergence points. Empty if the text is no JSON object.
/// Errors   FormatError if it is one, but none of these.
std::vector<ForeignRun> ReadJsonLog(std::string_view text);

/// Reads lines that hold one object each, as of W&B's history: all numbers, the
/// step in one of the usual keys. Empty if the first line is no object.
/// Errors   FormatError if a later line is none, or no line has a step. What a
///          killed program left of the last line is dropped, and noted.
std::vector<ForeignRun> ReadJsonLines(std::string_view text);

/// Key or column that holds the step, by the names that programs use; "" if
/// none of `names` is one. An iteration goes before a number of log calls.
std::string_view StepNameAmong(const std::vector<std::string>& names);

/// Says what the step is by that name: unit and base.
void DescribeStep(std::string_view name, ForeignRun& run);

}  // namespace isoloss::foreign
