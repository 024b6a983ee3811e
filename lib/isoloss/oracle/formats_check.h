// The definitions of number formats, and the oracle's own of them, against
// numbers that stand here.
#pragma once

#include "isoloss/oracle/report_sink.h"

namespace isoloss::oracle {

/// Adds tensor "formats": MX blocks of the recipes' element formats and scale
/// rules with their dequantised values, written down from the standards; and a
/// row or more of each other scaling, rounding and transform, computed by hand.
/// A wrong limit in formats::Format, which both sides use, shows here.
/// Source   docs/numerics.md, sections 5 to 7 and 13.
void CheckFormats(ReportSink& sink);

}  // namespace isoloss::oracle
