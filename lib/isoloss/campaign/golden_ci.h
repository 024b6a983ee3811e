// A check of goldens as CI systems are told of it.
#pragma once

#include "isoloss/campaign/exit_code.h"
#include "isoloss/campaign/golden_check.h"
#include "isoloss/document/result.h"

namespace isoloss::campaign {

/// The exit code of one folder: with `exact` changed bits fail.
ExitCode CodeOf(const CheckedGoldens& checked, bool exact);

/// A case for each golden, lane and arm. Changed bits are a failure if `exact`,
/// else they are noticed.
document::Result ResultOf(const CheckedGoldens& checked, bool exact);

}  // namespace isoloss::campaign
