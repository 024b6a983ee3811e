// Turns each study's result into a document and a picture.
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

// Each document is text and JSON (docs/studies.schema.json).

document::Document LadderDocument(const estimators::LadderStatement& statement);
document::Document StressDocument(const estimators::StressMap& map);
document::Document SitesDocument(const estimators::SitesStatement& statement);
document::Document IndicatorsDocument(
    const estimators::IndicatorStatement& statement);
document::Document WidthsDocument(const compare::WidthTransfer& transfer);
/// Returns a phrase: "24 seeds see it with chance 0.97, and ...".
std::string PowerText(const estimators::Contrast& contrast,
                      const estimators::ClaimPower& power, size_t seeds);
document::Document ClaimDocument(const estimators::ClaimResult& result);

/// Draws the gap of each arm over the operations of a training: the measured
/// cells, and the line up to the requested sizes.
document::Picture LadderPicture(const estimators::LadderStatement& statement);
/// Colours each cell by its result: divergence, a gap whose interval lies above
/// 0 or below it, or neither.
document::Picture StressPicture(const estimators::StressMap& map);
/// Draws the frontier of the gap over the speed-up of the 671B model, with
/// published sets as points. The harm of each product is drawn below it.
document::Picture SitesPicture(const estimators::SitesStatement& statement);
/// Draws a panel for each rule. It shows how far the judged runs are from the
/// rule's level over the steps, with a mark where a run diverged.
document::Picture IndicatorsPicture(
    const estimators::IndicatorStatement& statement);
/// Draws a row for each operand: its SQNR at the real width, and the interval
/// that narrow models predict.
document::Picture WidthsPicture(const compare::WidthTransfer& transfer);
/// Draws each contrast's estimate and interval on its own axis, between its
/// sides.
document::Picture ClaimPicture(const estimators::ClaimResult& result);

}  // namespace isoloss::studies
