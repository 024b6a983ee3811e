// Checks that the attributes and names of a run log agree.
#pragma once

#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Checks a log whose graph is whole. Returns a clause without a remedy for
/// each fault: names of parameters and tensors that the graph does not have,
/// texts that are empty, and attributes that do not follow from experiment_text
/// and the graph.
std::vector<std::string> WrongProvenance(const RunLog& log);

}  // namespace isoloss::runlog
