// Reports the verdicts on null arms and the control, beside the candidate.
#pragma once

#include <string>

#include "isoloss/document/document.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// "came out worse, as it must" and the like, of the control.
std::string ControlFinding(const gate::ControlArm& control);

/// "control: none named" and the like, in one line; says why if the verdict has
/// no such part.
std::string ControlStatement(const gate::Judgement& judgement);

/// Key `controls` of verdict.json; for people lines of at most 80 columns:
/// level L5's tests of the candidate, the null arms and the control, if there
/// is any such arm, and the statement.
document::Document ControlsDocument(const gate::Judgement& judgement);

}  // namespace isoloss::report
