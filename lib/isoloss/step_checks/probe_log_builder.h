// Fills a probe log, one case and one step after another.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/step_checks/precision_probe.h"
#include "isoloss/step_checks/report_sink.h"

namespace isoloss::step_checks {

class ProbeLogBuilder {
 public:
  /// Further rows belong to this case.
  void BeginCase(const std::string& name) { log_.cases.push_back(name); }

  void Add(int64_t step, const ReportSink& sink);
  void Add(const PrecisionFindings& findings);

  /// Adds what the case's run says of itself. The log's provenance is that of
  /// the first case, its /plain_steps those of case `plain`.
  void EndCase(const runlog::RunLog& run);

  runlog::ProbeLog& log() { return log_; }

 private:
  int64_t Case() const { return static_cast<int64_t>(log_.cases.size()) - 1; }
  int64_t Place(const std::string& tensor);

  runlog::ProbeLog log_;
  std::map<std::string, int64_t> places_;
};

}  // namespace isoloss::step_checks
