// Tells CI systems the result of a check of goldens.
#pragma once

#include "isoloss/campaign/exit_code.h"
#include "isoloss/campaign/golden_check.h"
#include "isoloss/document/result.h"

namespace isoloss::campaign {

/// Returns the exit code of one folder. If `exact`, changed bits fail.
ExitCode CodeOf(const CheckedGoldens& checked, bool exact);

/// Returns a case for each golden, lane and arm. Changed bits are a failure if
/// `exact`, else a notice.
document::Result ResultOf(const CheckedGoldens& checked, bool exact);

}  // namespace isoloss::campaign
