// Shows run logs, probe logs and null ensembles.
#pragma once

#include <string>

#include "isoloss/document/document.h"
#include "isoloss/report/run_summary.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::report {

/// Holds a run log and further facts about it.
struct ShownRun {
  const std::string& file;
  const runlog::RunLog& log;
  const RunSummary& summary;
  bool is_journal = false;
  const std::string& note;   ///< of its journal; "" if there is none
  bool with_recipe = false;  ///< with what each GEMM got
};

/// The document has all attributes by their names on disk, and no text for
/// people.
document::Document ProvenanceDocument(const runlog::Provenance& provenance);

/// Shows `file`, who made the run, its mesh, loss curve, `summary` and events.
document::Document DocumentOf(const ShownRun& run);

/// Shows the results of SummarizeProbe or SummarizeEnsemble.
document::Document DocumentOf(const runlog::ProbeLog& log,
                              const std::string& file);
document::Document DocumentOf(const runlog::Ensemble& ensemble,
                              const std::string& file);

}  // namespace isoloss::report
