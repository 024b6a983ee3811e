#include "isoloss/report/log_json.h"

#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "isoloss/report/evidence_summary.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::PutInteger;
using document::PutNumber;

Json CaseJson(const report::ProbeCaseSummary& of) {
  Json json{{"case", of.name},
            {"steps", of.steps},
            {"tensors", of.tensors},
            {"elements", of.elements},
            {"flips", of.flips}};
  PutNumber(json, "expected_flips", of.expected_flips);
  json["other"] = of.other;
  json["tokens"] = of.tokens;
  json["token_flips"] = of.token_flips;
  json["token_other"] = of.token_other;
  json["worst"] = nullptr;
  if (of.worst) {
    Json worst{{"tensor", of.worst->tensor},
               {"step", of.worst->step},
               {"row", of.worst->row},
               {"column", of.worst->column}};
    PutNumber(worst, "value", of.worst->value);
    PutNumber(worst, "expected", of.worst->expected);
    PutNumber(worst, "ratio", of.worst->ratio);
    json["worst"] = std::move(worst);
  }
  return json;
}

Json TopJson(const std::vector<NamedValue>& values) {
  Json list = Json::array();
  for (const NamedValue& value : values) {
    Json entry{{"name", value.name}};
    PutNumber(entry, "value", value.value);
    list.push_back(entry);
  }
  return list;
}

Json LayersJson(const std::vector<LayerSummary>& layers) {
  Json list = Json::array();
  for (const LayerSummary& layer : layers) {
    Json entry{{"layer", layer.layer}};
    PutNumber(entry, "router_entropy_nats", layer.router_entropy_nats);
    PutNumber(entry, "load_max_over_mean", layer.load_max_over_mean);
    PutInteger(entry, "experts_without_tokens", layer.experts_without_tokens);
    PutInteger(entry, "dropped_tokens", layer.dropped_tokens);
    PutInteger(entry, "routing_flips", layer.routing_flips);
    list.push_back(entry);
  }
  return list;
}

Json SummariesJson(const std::vector<TensorSummary>& tensors) {
  Json list = Json::array();
  for (const TensorSummary& tensor : tensors) {
    Json entry{{"name", tensor.name}, {"digest", tensor.digest}};
    for (size_t i = 0; i < tensor.statistics.size(); ++i) {
      PutNumber(entry, runlog::kTensorStatistics[i].name, tensor.statistics[i]);
    }
    list.push_back(entry);
  }
  return list;
}

}  // namespace

Json ProvenanceJson(const runlog::Provenance& provenance) {
  Json json = Json::object();
  for (const runlog::Column& column : runlog::AttributeGroup().columns) {
    const std::string& name = column.field.name;
    runlog::View(provenance).WithValue(column, [&]<typename T>(const T& value) {
      if constexpr (std::is_same_v<T, double>) {
        PutNumber(json, name, value);
      } else {
        json[name] = value;
      }
    });
  }
  return json;
}

Json ProbeJson(const runlog::ProbeLog& log, const std::string& file) {
  const report::ProbeSummary summary = report::SummarizeProbe(log);
  Json json{{"outcome", summary.passed() ? "PASS" : "FAIL"},
            {"kind", "probe log"},
            {"file", file},
            {"provenance", ProvenanceJson(log.provenance)},
            {"arm", log.provenance.arm},
            {"recipe", log.provenance.recipe},
            {"seed", log.provenance.seed},
            {"complete", summary.complete},
            {"cases", Json::array()},
            {"total", CaseJson(summary.total)}};
  for (const report::ProbeCaseSummary& of : summary.cases) {
    json["cases"].push_back(CaseJson(of));
  }
  return json;
}

Json EnsembleJson(const runlog::Ensemble& ensemble, const std::string& file) {
  const report::EnsembleSummary summary = report::SummarizeEnsemble(ensemble);
  Json json{
      {"kind", "null ensemble"},
      {"file", file},
      {"ensemble_kind", EnsembleKindName(ensemble.kind)},
      {"digest", ensemble.digest},
      {"provenance", ProvenanceJson(ensemble.provenance)},
      {"reference_provenance", ProvenanceJson(ensemble.reference_provenance)},
      {"members", summary.members},
      {"steps", summary.steps},
      {"seeds", summary.seeds},
      {"perturbations", summary.perturbations},
      {"parameters", summary.parameters},
      {"tensors", summary.tensors},
      {"probe_steps", summary.probe_steps},
      {"spreads", Json::array()}};
  for (const report::Spread& of : summary.spreads) {
    Json spread{
        {"quantity", of.quantity}, {"member", of.member}, {"step", of.step}};
    PutNumber(spread, "mean", of.mean);
    PutNumber(spread, "largest", of.largest);
    json["spreads"].push_back(std::move(spread));
  }
  return json;
}

Json RunLogJson(const ShownRun& run) {
  const runlog::RunLog& log = run.log;
  const RunSummary& summary = run.summary;
  Json json{{"kind", "run log"},
            {"file", run.file},
            {"provenance", ProvenanceJson(log.provenance)},
            {"is_journal", run.is_journal},
            {"note", run.note},
            {"steps", summary.steps},
            {"last_step", summary.last_step}};
  PutNumber(json, "loss_nats", summary.loss_nats);
  PutNumber(json, "grad_norm", summary.grad_norm);
  PutNumber(json, "held_out_loss_nats", summary.held_out_loss_nats);
  json["nonfinite_steps"] = summary.nonfinite_steps;
  PutInteger(json, "first_nonfinite_step", summary.first_nonfinite_step);
  PutInteger(json, "parameter_step", summary.parameter_step);
  json["top_grad_norms"] = TopJson(summary.top_grad_norms);
  json["top_update_ratios"] = TopJson(summary.top_update_ratios);
  PutInteger(json, "moe_step", summary.moe_step);
  json["layers"] = LayersJson(summary.layers);
  PutInteger(json, "tensor_step", summary.tensor_step);
  json["tensors"] = SummariesJson(summary.tensors);
  json["events"] = Json::array();
  for (const runlog::Event& event : log.events) {
    Json entry{{"kind", event.kind}, {"text", event.text}};
    PutNumber(entry, "unix_seconds", event.unix_seconds);
    json["events"].push_back(entry);
  }
  return json;
}

}  // namespace isoloss::report
