// Rows that are JSON objects: one on each line, or in a list.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Reads lines that hold one object each, as of W&B's history: all numbers,
/// those of objects within as "outer/inner". `step_name` is the key that counts
/// the steps; "": by the usual names, as most of the first lines have it. Empty
/// if the first line is no object.
/// Errors   FormatError if a later line is none, or no line has a step. What a
///          killed program left of the last line is dropped, and noted.
std::vector<ForeignRun> ReadJsonLines(std::string_view text,
                                      std::string_view step_name);

/// The same of a list of objects. Empty if it holds something else.
std::vector<ForeignRun> ReadJsonRows(const nlohmann::json& list,
                                     std::string_view step_name);

}  // namespace isoloss::foreign
