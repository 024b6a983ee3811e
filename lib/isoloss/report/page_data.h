// The data of the report page: one JSON object, which the page's scripts draw.
// docs/report.md says what is in it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/document/json.h"
#include "isoloss/gate/evidence.h"

namespace isoloss::report {

/// All that a page can show. Points into what it is of; what is empty or null
/// has no part on the page.
struct PageContent {
  std::string title = {};  ///< "": the name of the runs' experiment
  std::span<const compare::Run> runs = {};
  /// Earlier runs that a verdict on a regression was given against.
  std::span<const compare::Run> approved = {};
  /// Objects of verdict.json, each of one candidate.
  const std::vector<document::Json>* verdicts = nullptr;
  /// Arm that others are compared with, where no verdict says; "": the first.
  std::string baseline = {};
  std::span<const gate::Probe> probes = {};
  std::span<const gate::NullEnsemble> ensembles = {};
  const document::Json* growth = nullptr;  ///< DumpComparisonJson
  std::vector<std::string> notes = {};     ///< sentences for the reader
};

/// The object. Curves keep each step while they have at most kMostCurveValues
/// values; with all that is left out or thinned, which it says, what PageJson
/// makes of it has at most kMostPageBytes - kMostFrameBytes bytes.
document::Json PageData(const PageContent& content);

}  // namespace isoloss::report
