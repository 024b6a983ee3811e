// Collects the verdicts of the report page and the evidence for them.
#pragma once

#include <span>
#include <vector>

#include "isoloss/document/json.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/report/page_arms.h"
#include "isoloss/report/page_values.h"

namespace isoloss::report {

/// Takes what `verdicts` need of the budget, for which long lists and texts in
/// them are cut if all have more than 700,000 bytes; if that is not enough,
/// the last verdicts are left out. Notes both.
void BoundVerdicts(std::vector<document::Json>& verdicts, PageBudget& budget);

/// Of the first ensemble: the lowest and highest difference of a member's loss
/// from its reference's in each step, in percent of the reference's; null
/// without any. A member that is not finite makes a step's limits so.
document::Json EnvelopeJson(std::span<const gate::NullEnsemble> ensembles,
                            PageBudget& budget);

/// Choices of experts that differ, in percent of all, of each pair whose
/// experts were logged: means over bins of steps, at most 200 of a pair.
document::Json RoutingFlipsJson(const std::vector<PagePair>& pairs,
                                PageBudget& budget);

/// DumpComparisonJson with at most 50 entries of each list; null of null.
document::Json GrowthJson(document::Json growth, PageBudget& budget);

/// What the oracle found, one entry for each probe log.
document::Json OracleJson(std::span<const gate::Probe> probes,
                          PageBudget& budget);

}  // namespace isoloss::report
