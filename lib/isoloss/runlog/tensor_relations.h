// Rules that the statistics of one tensor obey together. Each returns where it
// does not hold first, with numbers; "" if it holds.
#pragma once

#include <string>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

std::string WrongDigests(const RunLog& log);
std::string UndefinedStatistic(const RunLog& log);
std::string WrongMoments(const RunLog& log);
std::string WrongShares(const RunLog& log);
std::string WrongScales(const RunLog& log);
std::string WrongErrors(const RunLog& log);

}  // namespace isoloss::runlog
