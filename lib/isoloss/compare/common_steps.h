// Names of two dumps are matched as those of two logs are.
#pragma once

#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {

using runlog::MatchedNames;
using runlog::MatchNames;
using runlog::SharedName;

}  // namespace isoloss::compare
