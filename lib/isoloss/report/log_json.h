// Probe logs and null ensembles as JSON.
#pragma once

#include <string>

#include "isoloss/report/json_numbers.h"
#include "isoloss/report/log_text.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::report {

/// All attributes, by their names on disk.
Json ProvenanceJson(const runlog::Provenance& provenance);

/// What report::SummarizeProbe and SummarizeEnsemble say of them.
Json ProbeJson(const runlog::ProbeLog& log, const std::string& file);
Json EnsembleJson(const runlog::Ensemble& ensemble, const std::string& file);

/// With `summary`, as RenderRunLog shows it.
Json RunLogJson(const ShownRun& run);

}  // namespace isoloss::report
