// Shows the verdicts on null arms and the control, beside the candidate's.
#pragma once

#include <string>

#include "isoloss/document/document.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// Returns "came out worse, as it must" or the like, for the control.
std::string ControlFinding(const gate::ControlArm& control);

/// Returns "control: none named" or the like, in one line; says why if the
/// verdict has no such part.
std::string ControlStatement(const gate::Judgement& judgement);

/// Returns the key `controls` of verdict.json. People read lines of at most 80
/// columns: the statement, and if there are such arms, level L5's tests of the
/// candidate, the null arms and the control.
document::Document ControlsDocument(const gate::Judgement& judgement);

}  // namespace isoloss::report
