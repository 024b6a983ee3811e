// Each study's result as a document and a picture.
#pragma once

#include "isoloss/compare/width_transfer.h"
#include "isoloss/document/document.h"
#include "isoloss/document/picture.h"
#include "isoloss/estimators/claim_judge.h"
#include "isoloss/estimators/indicator_judge.h"
#include "isoloss/estimators/ladder_statement.h"
#include "isoloss/estimators/site_findings.h"
#include "isoloss/estimators/stress_map.h"

namespace isoloss::studies {

// A document is text and JSON (docs/studies.schema.json).

document::Document LadderDocument(const estimators::LadderStatement& statement);
document::Document StressDocument(const estimators::StressMap& map);
document::Document SitesDocument(const estimators::SitesStatement& statement);
document::Document IndicatorsDocument(
    const estimators::IndicatorStatement& statement);
document::Document WidthsDocument(const compare::WidthTransfer& transfer);
document::Document ClaimDocument(const estimators::ClaimResult& result);

/// The gap of each arm over the operations of a training: measured cells, and
/// the predictions of all laws at the sizes that were asked for.
document::Picture LadderPicture(const estimators::LadderStatement& statement);
/// Cells in the colour of what happened: divergence, a gap whose interval lies
/// above 0 or below it, or neither.
document::Picture StressPicture(const estimators::StressMap& map);
/// The frontier of the gap over the speed-up of the 671B model, with published
/// sets as points; below it the harm of each product.
document::Picture SitesPicture(const estimators::SitesStatement& statement);
/// A panel for each rule: how far the judged runs are from its level over the
/// steps, with a mark where a run diverged.
document::Picture IndicatorsPicture(
    const estimators::IndicatorStatement& statement);
/// A row for each operand: its SQNR at the real width, and the interval that
/// narrow models predict.
document::Picture WidthsPicture(const compare::WidthTransfer& transfer);
/// Each contrast's estimate and interval on an axis of its own, between its
/// sides.
document::Picture ClaimPicture(const estimators::ClaimResult& result);

}  // namespace isoloss::studies
