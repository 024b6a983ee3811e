#include "evidence_json.h"

#include <type_traits>
#include <utility>

#include "isoloss/report/evidence_summary.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::cli {
namespace {

/// Visitor of the schema.
struct AttributesJson {
  template <typename T>
  void Attribute(const runlog::Field& field, const T& value) {
    if constexpr (std::is_same_v<T, double>) {
      PutNumber(object, field.name, value);
    } else {
      object[field.name] = value;
    }
  }
  Json object = Json::object();
};

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

}  // namespace

Json ProvenanceJson(const runlog::Provenance& provenance) {
  AttributesJson attributes;
  runlog::VisitProvenance(attributes, provenance);
  return attributes.object;
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

}  // namespace isoloss::cli
