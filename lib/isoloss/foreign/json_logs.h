// Reads logs that are one JSON document.
#pragma once

#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Reads trainer_state.json of Hugging Face's Trainer, golden values of
/// Megatron-LM, NeMo and Megatron-Bridge (all layouts since 2023) and MLPerf's
/// reference convergence points. It also reads a list of objects (ReadJsonRows,
/// with the `step_name`). The result is empty if the text is no JSON object or
/// list.
/// Errors   FormatError if it is an object, but none of these.
std::vector<ForeignRun> ReadJsonLog(std::string_view text,
                                    std::string_view step_name);

}  // namespace isoloss::foreign
