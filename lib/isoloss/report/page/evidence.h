// Collects the verdicts of the report page and the evidence for them.
#pragma once

#include <span>
#include <vector>

#include "isoloss/document/json.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/report/page/arms.h"
#include "isoloss/report/page/values.h"

namespace isoloss::report {

/// Takes what `verdicts` need from the budget. If all have more than 700,000
/// bytes, long lists and texts in them are cut. If that is not enough, the last
/// verdicts are left out. Notes both.
void BoundVerdicts(std::vector<document::Json>& verdicts, PageBudget& budget);

/// Returns the lowest and highest difference of a member's loss from its
/// reference's in each step of the first ensemble. They are in percent of the
/// reference's loss; null without an ensemble. If a member is not finite, the
/// step's limits are not finite either.
document::Json EnvelopeJson(std::span<const gate::NullEnsemble> ensembles,
                            PageBudget& budget);

/// Returns the choices of experts that differ, in percent of all, for each pair
/// whose experts were logged. They are means over bins of steps, at most 200
/// for each pair.
document::Json RoutingFlipsJson(const std::vector<PagePair>& pairs,
                                PageBudget& budget);

/// Returns DumpComparisonJson with at most 50 entries of each list; null for
/// null.
document::Json GrowthJson(document::Json growth, PageBudget& budget);

/// Returns what the oracle found, one entry for each probe log.
document::Json OracleJson(std::span<const gate::Probe> probes,
                          PageBudget& budget);

}  // namespace isoloss::report
