// Run logs, probe logs and null ensembles as text for a terminal.
#pragma once

#include <string>

#include "isoloss/document/chart.h"
#include "isoloss/report/run_summary.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::report {

/// A run log and what is said of it besides.
struct ShownRun {
  const std::string& file;
  const runlog::RunLog& log;
  const RunSummary& summary;
  bool is_journal = false;
  const std::string& note;   ///< of its journal; "" if there is none
  bool with_recipe = false;  ///< with what each GEMM got
};

/// `file`, who made the run, its mesh, loss curve, `summary` and events.
std::string RenderRunLog(const ShownRun& run, const document::TextStyle& style);
std::string RenderProbeLog(const runlog::ProbeLog& log,
                           const std::string& file);
std::string RenderEnsembleLog(const runlog::Ensemble& ensemble,
                              const std::string& file);

}  // namespace isoloss::report
