// Rules about steps of a run log and what was recorded at them: see
// relations.cc.
#pragma once

#include <string>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

// As RelationRule::broken.
std::string WrongStepRows(const RunLog& log);
std::string WrongTensorSteps(const RunLog& log);
std::string WrongEvaluations(const RunLog& log);
std::string WrongTokensSeen(const RunLog& log);
std::string WrongThroughput(const RunLog& log);
std::string WrongNorms(const RunLog& log);
std::string WrongEvaluationMean(const RunLog& log);

/// Whether the run went on with another mesh, which ends /exchange.
bool ChangedMesh(const RunLog& log);

}  // namespace isoloss::runlog
