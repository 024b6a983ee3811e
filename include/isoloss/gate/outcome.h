// Defines the outcomes of a check, a level or a verdict.
#pragma once

#include <string_view>

namespace isoloss::gate {

/// A later outcome takes precedence over an earlier one.
enum class Outcome { kPass, kInconclusive, kFail, kInvalid };

/// Returns "PASS", "INCONCLUSIVE", "FAIL" or "INVALID".
std::string_view OutcomeName(Outcome outcome);

/// Returns 0 for pass, 1 for fail, 3 for invalid, 4 for inconclusive.
int ExitCode(Outcome outcome);

}  // namespace isoloss::gate
