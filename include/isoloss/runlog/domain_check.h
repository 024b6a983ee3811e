// Checks every column of a log against its domain, and the relations between
// columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/runlog/domain.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// A column, attribute or relation that does not hold.
struct Violation {
  Fault fault = Fault::kFile;
  /// The first wrong value: column, step or row, value, rule and remedy. The
  /// name of the file belongs before it.
  std::string message;
};

/// One violation for each column or relation that is broken, in the order of
/// the schema; relations are checked only if every column is as long as it must
/// be. A column that such a run records (Field::when), and that the log's
/// version has, must be there; others may be empty.
std::vector<Violation> CheckDomains(const RunLog& log);
std::vector<Violation> CheckDomains(const ProbeLog& log);

/// The relations that columns of /steps obey with each other, attributes and
/// /parameters, where they do not hold: what an ensemble has of its runs.
std::vector<std::string> BrokenInSteps(const RunLog& log);

/// Errors   ShapeError as WriteEnsemble.
std::vector<Violation> CheckDomains(const Ensemble& ensemble);

}  // namespace isoloss::runlog
