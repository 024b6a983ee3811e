// The definitions of number formats that the oracle shares with what it checks,
// against numbers that stand here.
#pragma once

#include "isoloss/oracle/report_sink.h"

namespace isoloss::oracle {

/// Adds tensor "formats": MX blocks of the recipes' element formats and scale
/// rules with their dequantised values, written down from the standards. A
/// wrong limit or scale rule in formats::, which both sides use, shows here.
/// Source   docs/numerics.md, sections 5 to 7 and 17.
void CheckFormats(ReportSink& sink);

}  // namespace isoloss::oracle
