// Makes the sentences of a verdict. Names of users and files stand in them as
// logs have them; each output format escapes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// Says what the outcome means, with the figure that decided and the margin:
/// "mxfp8 ends within 0.25 % of bf16: final loss +0.020 % (-0.050 % to
/// +0.090 %, 8 seed pairs)." The outcome's word stands beside it.
std::string HeadlineOf(const gate::Judgement& judgement);

/// Returns the checks that decided the outcome.
std::vector<const gate::Check*> Deciding(const gate::Judgement& judgement);

/// Returns whether the check found that all losses of one arm follow from those
/// of the second arm, as in a different unit. Such a relation explains the
/// findings of further checks.
bool TellsRelation(const gate::Check& check);

/// Returns "1 step", "2 steps".
std::string Count(int64_t count, std::string_view what);

/// Returns "oracle" (L2), with the quotes.
std::string LevelText(const gate::LevelOutcome& level);

/// Returns "mean paired loss difference +0.022 % within +-0.25 %": quantity,
/// value, relation, limit and unit, as far as the check has them.
std::string StatementOf(const gate::Check& check);

/// Returns: The check "final loss" (L5) passes: STATEMENT (EVIDENCE).
std::string SentenceOf(const gate::Check& check);

/// Returns the reasons on the line of the verdict: "9 checks pass; no evidence:
/// L2".
std::string VerdictReasons(const gate::Judgement& judgement);

}  // namespace isoloss::report
