// From logs to a judgement.
#pragma once

#include <span>
#include <string_view>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/ladder.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// Judges arm `candidate_arm` against arm `baseline_arm`; runs of other arms
/// are ignored. Whatever is wrong with the runs is an outcome, not an error:
/// with no runs at all it is kInvalid.
/// Errors   ConfigError if the policy is out of its ranges.
Judgement Judge(std::span<const compare::Run> runs,
                std::string_view baseline_arm, std::string_view candidate_arm,
                const Policy& policy);

/// As above, for arms that were paired by hand, as when both carry one name.
Judgement Judge(const compare::Pairing& pairing, const Policy& policy);

/// As above, with all evidence there is. evidence.pairing must be set.
Judgement Judge(const Evidence& evidence, const Policy& policy,
                const LadderOptions& options = {});

}  // namespace isoloss::gate
