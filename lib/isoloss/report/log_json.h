// Probe logs and null ensembles as JSON.
#pragma once

#include <string>

#include "isoloss/document/json.h"
#include "isoloss/report/log_text.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::report {

/// All attributes, by their names on disk.
document::Json ProvenanceJson(const runlog::Provenance& provenance);

/// What report::SummarizeProbe and SummarizeEnsemble say of them.
document::Json ProbeJson(const runlog::ProbeLog& log, const std::string& file);
document::Json EnsembleJson(const runlog::Ensemble& ensemble,
                            const std::string& file);

/// With `summary`, as RenderRunLog shows it.
document::Json RunLogJson(const ShownRun& run);

}  // namespace isoloss::report
