// Writes the findings of isoloss check-tensors as a probe log for the gate.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "isoloss/base/build_info.h"
#include "isoloss/base/printable.h"
#include "isoloss/inspection/check_tensors.h"
#include "isoloss/step_checks/probe_cases.h"
#include "isoloss/step_checks/report_sink.h"

namespace isoloss::inspection {
namespace {

using operations::Finding;
using operations::OperationFile;

/// Returns the loss that a file recorded; NaN if there is none.
double LossOf(const OperationFile& file) {
  if (file.loss_nats) return *file.loss_nats;
  double loss = std::nan("");
  for (const operations::Operation& operation : file.operations) {
    if (operation.type != "loss") continue;
    // With several micro-batches no recorded loss is that of the step.
    if (!std::isnan(loss)) return std::nan("");
    loss = static_cast<double>(operation.Find("loss")->values[0]);
  }
  return loss;
}

/// Appends mean loss and gradient norm of a step. They are NaN unless the files
/// of all ranks tell them.
void AppendStep(const std::vector<const OperationFile*>& files,
                runlog::PlainStepColumns& steps) {
  std::set<int64_t> ranks;
  double sum = 0.0;
  double tokens = 0.0;
  for (const OperationFile* file : files) {
    ranks.insert(file->rank);
    sum += LossOf(*file) * static_cast<double>(file->tokens);
    tokens += static_cast<double>(file->tokens);
  }
  const OperationFile& first = *files.front();
  const bool whole = static_cast<int64_t>(ranks.size()) == first.ranks;
  steps.step.push_back(first.step);
  steps.loss_nats.push_back(whole && tokens > 0 ? sum / tokens : std::nan(""));
  const bool alike = std::ranges::all_of(files, [&](const auto* file) {
    return file->grad_norm == first.grad_norm;
  });
  steps.grad_norm.push_back(alike ? first.grad_norm.value_or(std::nan(""))
                                  : std::nan(""));
  steps.bytes_to_self.push_back(0);
  steps.bytes_within_nodes.push_back(0);
  steps.bytes_between_nodes.push_back(0);
}

/// Counts operations of which at least one result was compared.
int64_t OperationsOf(const CheckedTensors& checked) {
  std::set<std::pair<size_t, size_t>> operations;
  for (const Finding& finding : checked.findings) {
    operations.emplace(finding.file, finding.operation);
  }
  return static_cast<int64_t>(operations.size());
}

runlog::Provenance ProvenanceOf(const CheckedTensors& checked,
                                const CheckTensorsRequest& request) {
  const BuildInfo build = GetBuildInfo();
  const OperationFile& first = checked.files.front();
  runlog::Provenance provenance;
  provenance.tool_version = "isoloss " + build.version;
  provenance.commit = build.commit;
  provenance.compiler = build.compiler;
  provenance.origin.format = "operation files";
  provenance.experiment_name = first.run;
  provenance.initial_weights_digest = first.initial_weights_digest;
  provenance.arm = request.arm.empty() ? first.arm : request.arm;
  provenance.recipe = checked.recipe.name;
  provenance.seed = request.seed.value_or(first.seed.value_or(0));
  for (const OperationFile& file : checked.files) {
    provenance.steps_planned = std::max(provenance.steps_planned, file.step);
    provenance.ranks = std::max(provenance.ranks, file.ranks);
  }
  provenance.tokens_per_step = provenance.parameters = provenance.workers = 1;
  provenance.ranks_per_node = provenance.ranks;
  provenance.complete = checked.is_complete();
  return provenance;
}

}  // namespace

runlog::ProbeLog ProbeLogOf(const CheckedTensors& checked,
                            const CheckTensorsRequest& request) {
  runlog::ProbeLog log;
  log.provenance = ProvenanceOf(checked, request);
  log.operations = OperationsOf(checked);
  log.cases.emplace_back(step_checks::kPlainCase);
  std::map<int64_t, step_checks::ReportSink> sinks;
  std::map<int64_t, std::vector<const OperationFile*>> files;
  std::map<std::string, int64_t> places;
  for (const OperationFile& file : checked.files) {
    files[file.step].push_back(&file);
  }
  for (const Finding& finding : checked.findings) {
    const std::string tensor = Printable(finding.tensor);
    const auto place = static_cast<int64_t>(places.size());
    if (places.try_emplace(tensor, place).second) log.tensors.push_back(tensor);
    sinks[checked.files[finding.file].step].Add(tensor, finding.comparison);
  }
  for (const auto& [step, of_step] : files) {
    AppendStep(of_step, log.plain_steps);
    const step_checks::ReportSink& sink = sinks[step];
    for (const auto& [tensor, comparison] : sink.comparisons()) {
      runlog::OracleRow row = comparison.Row();
      row.probe_case = 0;
      row.step = step;
      row.tensor = places.at(tensor);
      log.oracle.Append(row);
    }
  }
  return log;
}

}  // namespace isoloss::inspection
