#include "isoloss/step_checks/report_sink.h"

namespace isoloss::step_checks {

void ReportSink::Add(const std::string& tensor,
                     const oracle::Comparison& comparison) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = comparisons_.try_emplace(tensor, comparison);
  if (!is_new) place->second.Merge(comparison);
}

void ReportSink::AddRouting(const runlog::OracleRoutingRow& row) {
  const std::lock_guard lock(mutex_);
  routing_.push_back(row);
}

void ReportSink::Merge(const ReportSink& part) {
  for (const auto& [tensor, comparison] : part.comparisons_) {
    Add(tensor, comparison);
  }
  for (const runlog::OracleRoutingRow& row : part.routing_) AddRouting(row);
}

}  // namespace isoloss::step_checks
