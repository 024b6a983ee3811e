// Lists the outcomes of a check, a level or a verdict.
#pragma once

#include <string_view>

namespace isoloss::gate {

/// A later outcome overrules an earlier one.
enum class Outcome { kPass, kInconclusive, kFail, kInvalid };

/// "PASS", "INCONCLUSIVE", "FAIL" or "INVALID".
std::string_view OutcomeName(Outcome outcome);

/// 0 pass, 1 fail, 3 invalid, 4 inconclusive.
int ExitCode(Outcome outcome);

}  // namespace isoloss::gate
