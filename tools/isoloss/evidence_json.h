// Probe logs and null ensembles as JSON.
#pragma once

#include <string>

#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"
#include "json_numbers.h"

namespace isoloss::cli {

/// All attributes, by their names on disk.
Json ProvenanceJson(const runlog::Provenance& provenance);

/// What report::SummarizeProbe and SummarizeEnsemble say of them.
Json ProbeJson(const runlog::ProbeLog& log, const std::string& file);
Json EnsembleJson(const runlog::Ensemble& ensemble, const std::string& file);

}  // namespace isoloss::cli
