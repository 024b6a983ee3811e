// Makes the data of the report page: one JSON object, which the page's scripts
// draw. docs/report.md describes its content.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/document/json.h"
#include "isoloss/gate/evidence.h"

namespace isoloss::report {

/// Holds all that a page can show. It points to its sources; an empty or null
/// member has no part on the page.
struct PageContent {
  std::string title = {};  ///< "": the name of the runs' experiment
  std::span<const compare::Run> runs = {};
  /// A verdict on a regression compares with these earlier runs.
  std::span<const compare::Run> approved = {};
  /// These are objects of verdict.json, each of one candidate.
  const std::vector<document::Json>* verdicts = nullptr;
  /// The arm with which the remaining arms are compared, if no verdict says so;
  /// "": the first arm is used.
  std::string baseline = {};
  std::span<const gate::Probe> probes = {};
  std::span<const gate::NullEnsemble> ensembles = {};
  const document::Json* growth = nullptr;  ///< DumpComparisonJson
  std::vector<std::string> notes = {};     ///< sentences for the reader
};

/// Returns the object. Curves keep each step while they have at most
/// kMostCurveValues values. The object says what was left out or thinned.
/// PageJson then makes at most kMostPageBytes - kMostFrameBytes bytes of it.
document::Json PageData(const PageContent& content);

}  // namespace isoloss::report
