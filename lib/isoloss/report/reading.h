// What a verdict says, in whole plain sentences: one text for the terminal, the
// HTML page, Markdown and JUnit.
#pragma once

#include <string>
#include <vector>

#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// Sentences end with a full stop. Names of users and files stand in them as
/// logs have them: whoever puts them into a terminal, HTML, XML or Markdown
/// escapes them there.
struct Reading {
  /// What the outcome means, with the figure that decided and the margin:
  /// "mxfp8 trains like bf16 within 0.25 %: final loss +0.020 % (-0.050 % to
  /// +0.090 %, 8 seed pairs)." The outcome's word stands beside it.
  std::string headline;
  /// Of a PASS what was judged, level by level; else a sentence for each check
  /// that decided, with figure, relation and limit.
  std::vector<std::string> reasons;
  /// The smallest difference that this experiment sees and how surely, what
  /// control and null arms came to, what the gate catches of planted bugs,
  /// levels without evidence. Empty of INVALID.
  std::vector<std::string> could_have_seen;
  /// Where a PASS or FAIL holds, and nowhere else. Empty of other outcomes,
  /// which hold nowhere.
  std::vector<std::string> holds_for;
  /// What to do, one line each and without a full stop, as commands end them:
  /// "final loss: 9 seed pairs needed for power 0.8: isoloss verify …".
  std::vector<std::string> next;
};

/// Renders only; every number was computed before.
Reading ReadingOf(const gate::Judgement& judgement);

/// "mean paired loss difference +0.022 % within +-0.25 %": quantity, value,
/// relation, limit and unit, as far as the check has them.
std::string StatementOf(const gate::Check& check);

/// The check "final loss" (L5) passes: STATEMENT (EVIDENCE).
std::string SentenceOf(const gate::Check& check);

}  // namespace isoloss::report
