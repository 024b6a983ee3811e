// A verdict, whole.
#pragma once

#include "isoloss/document/document.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// Everything there is to say. For people: what was compared, a table of both
/// arms, their loss curves and difference, measures, checks, warnings, and the
/// verdict on a line that scripts look for. For programs: the object of
/// verdict.json but its digest (docs/verdict.schema.json). Every number was
/// computed before.
document::Document DocumentOf(const gate::Judgement& judgement);

}  // namespace isoloss::report
