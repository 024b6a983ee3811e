#include "isoloss/step_checks/probe_log_builder.h"

#include "isoloss/step_checks/probe_cases.h"

namespace isoloss::step_checks {

void ProbeLogBuilder::Add(int64_t step, const ReportSink& sink) {
  for (const auto& [tensor, comparison] : sink.comparisons()) {
    runlog::OracleRow row = comparison.Row();
    row.probe_case = Case();
    row.step = step;
    row.tensor = Place(tensor);
    log_.oracle.Append(row);
  }
  for (runlog::OracleRoutingRow row : sink.routing()) {
    row.probe_case = Case();
    row.step = step;
    log_.routing.Append(row);
  }
  if (log_.cases.back() != kPlainCase) return;
  const ExchangeBytes bytes = sink.bytes().value_or(ExchangeBytes{});
  runlog::PlainStepColumns& plain = log_.plain_steps;
  plain.bytes_to_self.push_back(bytes.to_self);
  plain.bytes_within_nodes.push_back(bytes.within_nodes);
  plain.bytes_between_nodes.push_back(bytes.between_nodes);
}

void ProbeLogBuilder::Add(const PrecisionFindings& findings) {
  for (const std::string& tensor : findings.tensors) Place(tensor);
  log_.precision = findings.precision;
  for (int64_t& tensor : log_.precision.tensor) {
    tensor = Place(findings.tensors[static_cast<size_t>(tensor)]);
  }
  log_.routing_flips = findings.routing_flips;
}

void ProbeLogBuilder::EndCase(const runlog::RunLog& run) {
  if (log_.cases.size() == 1) log_.provenance = run.provenance;
  if (log_.cases.back() != kPlainCase) return;
  runlog::PlainStepColumns& plain = log_.plain_steps;
  plain.step = run.steps.step;
  plain.loss_nats = run.steps.loss_nats;
  plain.grad_norm = run.steps.grad_norm;
}

int64_t ProbeLogBuilder::Place(const std::string& tensor) {
  const auto [place, is_new] =
      places_.try_emplace(tensor, static_cast<int64_t>(places_.size()));
  if (is_new) log_.tensors.push_back(tensor);
  return place->second;
}

}  // namespace isoloss::step_checks
