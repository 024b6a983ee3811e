// Tells CI systems the result of a check of goldens.
#pragma once

#include "isoloss/document/result.h"
#include "isoloss/goldens/golden_check.h"
#include "isoloss/system/exit_code.h"

namespace isoloss::goldens {

/// Returns the exit code of one folder. If `exact`, changed bits fail.
system::ExitCode CodeOf(const CheckedGoldens& checked, bool exact);

/// Returns a case for each golden, lane and arm. Changed bits are a failure if
/// `exact`, else a notice.
document::Result ResultOf(const CheckedGoldens& checked, bool exact);

}  // namespace isoloss::goldens
