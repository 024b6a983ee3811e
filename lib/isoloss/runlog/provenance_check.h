// What the attributes and names of a run log must agree in.
#pragma once

#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Of a log whose graph is whole: names of parameters and tensors that the
/// graph does not have, texts that are empty, and attributes that do not follow
/// from experiment_text and the graph. Each is a clause without a remedy.
std::vector<std::string> WrongProvenance(const RunLog& log);

}  // namespace isoloss::runlog
