// A verdict as CI systems are told of it.
#pragma once

#include <string>

#include "isoloss/gate/verdict.h"
#include "isoloss/report/ci_result.h"

namespace isoloss::report {

/// Says what the terminal says (report/reading.h). A check that does not gate
/// is kSkipped, or kNoticed if it did not pass; a level without any check is a
/// skipped case. `file` is what the verdict is about, as the repository names
/// it; may be empty.
CiSuite SuiteOf(const gate::Judgement& judgement, std::string file);

}  // namespace isoloss::report
