// Writes a verdict as a document.
#pragma once

#include "isoloss/document/document.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// The document contains the whole verdict. People read what was compared, a
/// table of both arms, their loss curves and difference, measures, checks and
/// warnings, and the verdict on a line that scripts look for. Programs read the
/// object of verdict.json without its digest (docs/verdict.schema.json). Every
/// number was computed before.
document::Document DocumentOf(const gate::Judgement& judgement);

}  // namespace isoloss::report
