// Compares the number formats' definitions, and the oracle's own ones, with
// fixed numbers.
#pragma once

#include "isoloss/step_checks/report_sink.h"

namespace isoloss::step_checks {

/// Adds tensor "formats". It has MX blocks of the recipes' element formats and
/// scale rules, with dequantised values from the standards. It also has at
/// least one row of each other scaling, rounding and transform, computed by
/// hand. It shows a wrong limit in formats::Format, which the model and the
/// oracle share.
/// Source   docs/numerics.md, sections 5 to 7 and 13.
void CheckFormats(ReportSink& sink);

}  // namespace isoloss::step_checks
