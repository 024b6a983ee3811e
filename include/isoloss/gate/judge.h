// Makes a judgement from logs.
#pragma once

#include "isoloss/compare/pair.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/ladder.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// Judges the candidate's runs of `pairing` against the baseline's. A fault of
/// the runs is an outcome, not an error: with no runs at all the outcome is
/// kInvalid.
/// Errors   ConfigError if the policy is out of its ranges.
Judgement Judge(const compare::Pairing& pairing, const Policy& policy);

/// As above, with all evidence that there is. evidence.pairing must be set.
Judgement Judge(const Evidence& evidence, const Policy& policy,
                const LadderOptions& options = {});

/// Returns the verdict on runs that were stopped early. It holds only check
/// `stop` of level L6, because all remaining levels need runs that have ended.
Judgement JudgeStopped(const Evidence& evidence, const Policy& policy,
                       Check stop);

}  // namespace isoloss::gate
