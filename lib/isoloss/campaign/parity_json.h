#pragma once

#include "isoloss/report/json_numbers.h"
#include "isoloss/train/parity.h"

namespace isoloss::campaign {

/// What `isoloss lab parity --json` holds of an arm.
report::Json ParityJson(const train::ParityReport& found);

}  // namespace isoloss::campaign
