// Reads rows that are JSON objects: one on each line, or in a list.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Reads lines that hold one object each, as of W&B's history. It takes all
/// numbers, and calls those of inner objects "outer/inner". `step_name` is the
/// key that counts the steps; "" means the usual name that most of the first
/// lines have. The result is empty if the first line is no object.
/// Errors   FormatError if a later line is none, or no line has a step. What a
///          killed program left of the last line is dropped, and noted.
std::vector<ForeignRun> ReadJsonLines(std::string_view text,
                                      std::string_view step_name);

/// Reads a list of objects as ReadJsonLines reads lines. Empty if the list
/// holds something else.
std::vector<ForeignRun> ReadJsonRows(const nlohmann::json& list,
                                     std::string_view step_name);

}  // namespace isoloss::foreign
