// Compares every column of a log with its domain, and checks the relations
// between columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/runlog/domain.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// A column, attribute or relation is broken.
struct Violation {
  Fault fault = Fault::kFile;
  /// Describes the first wrong value: column, step or row, value, rule and
  /// remedy. The name of the file belongs before it.
  std::string message;
};

/// Returns one violation for each broken column or relation, in the order of
/// the schema. Relations are checked only if every column is as long as it must
/// be. A column must be there if such a run records it (Field::when) and the
/// log's version has it; other columns may be empty.
std::vector<Violation> CheckDomains(const RunLog& log);
std::vector<Violation> CheckDomains(const ProbeLog& log);

/// Returns the broken relations of columns of /steps with each other,
/// attributes and /parameters: an ensemble has these parts of its runs.
std::vector<std::string> BrokenInSteps(const RunLog& log);

/// Does the same for an ensemble.
/// Errors   ShapeError as WriteEnsemble.
std::vector<Violation> CheckDomains(const Ensemble& ensemble);

}  // namespace isoloss::runlog
