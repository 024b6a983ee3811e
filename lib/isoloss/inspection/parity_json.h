#pragma once

#include "isoloss/document/json.h"
#include "isoloss/train/parity.h"

namespace isoloss::inspection {

/// Returns what `isoloss lab parity --json` holds of an arm.
document::Json ParityJson(const train::ParityReport& found);

}  // namespace isoloss::inspection
