#include "isoloss/report/log_document.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <initializer_list>
#include <utility>

#include "isoloss/compare/exchange_summary.h"
#include "isoloss/report/evidence_summary.h"
#include "isoloss/report/recipe_document.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::report {
namespace {

using document::Document;
using document::Line;

// Logs of foreign programs tell less: values that they lack are left out.

/// Returns `word` and the value, or "" without a value.
std::string Prefixed(const char* word, const std::string& value) {
  return value.empty() ? "" : word + value;
}

std::string KnownParts(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += Prefixed(text.empty() ? "" : ", ", part);
  }
  return text;
}

std::string WithDetails(const std::string& text, const std::string& details) {
  if (text.empty() || details.empty()) return text + details;
  return fmt::format("{} ({})", text, details);
}

std::string RunText(const runlog::Provenance& p) {
  return KnownParts({p.arm, Prefixed("recipe ", p.recipe),
                     p.seed < 0 ? "" : fmt::format("seed {}", p.seed),
                     p.perturbation});
}

std::string ExperimentText(const runlog::Provenance& p) {
  return WithDetails(p.experiment_name, Prefixed("config ", p.config_digest));
}

std::string MakerText(const runlog::Provenance& p) {
  return WithDetails(
      p.tool_version.empty() ? p.origin.format : p.tool_version,
      KnownParts({p.commit, p.compiler, Prefixed("kernels: ", p.cpu_target)}));
}

std::string WeightsText(const runlog::Provenance& p) {
  return KnownParts(
      {p.parameters > 0 ? fmt::format("{} parameters", p.parameters) : "",
       Prefixed("initial weights ", p.initial_weights_digest)});
}

std::string GemmText(const runlog::Provenance& p) {
  if (p.gemms_per_step == 0) return "";
  return fmt::format("{} of {} quantised per step{}",
                     p.quantized_gemms_per_step, p.gemms_per_step,
                     p.graph.phases.first_step.empty() ? "" : " at first");
}

void AddProvenance(const ShownRun& run, Document& document) {
  const runlog::RunLog& log = run.log;
  const runlog::Provenance& p = log.provenance;
  document.Say(run.file);
  document.AddField("experiment", ExperimentText(p));
  document.AddField("arm", RunText(p));
  document.AddField("made by", MakerText(p));
  document.AddField(
      "corpus",
      WithDetails(p.corpus_description, Prefixed("digest ", p.corpus_digest)));
  document.AddField("model", WeightsText(p));
  document.AddField("GEMMs", GemmText(p));
  document.AddField(
      "steps", fmt::format("{} of {} planned{}", log.steps.step.size(),
                           p.steps_planned, p.complete ? "" : ", incomplete"));
  document.AddField("journal", run.note);
}

std::string ByteText(double bytes) {
  return bytes < 0x1p20 ? fmt::format("{:.1f} KiB", bytes / 0x1p10)
                        : fmt::format("{:.1f} MiB", bytes / 0x1p20);
}

/// Says where experts lived and how rows travelled; adds nothing for logs that
/// do not say it.
void AddExchange(const runlog::RunLog& log, Document& document) {
  const runlog::Provenance& p = log.provenance;
  document.AddField("exchange", p.exchange);
  if (p.exchange.empty() || p.ranks < 2) return;
  const auto summary = compare::SummarizeExchange(log);
  if (!summary) return;
  document.AddField(
      "mesh",
      fmt::format("{} ranks on {} nodes (transport {}, processes {}): per step "
                  "{} within nodes, {} between",
                  p.ranks, summary->nodes, p.transport, p.processes,
                  ByteText(summary->bytes_within_nodes),
                  ByteText(summary->bytes_between_nodes)));
  document.AddField(
      "rows", fmt::format("{:.2f} per token, {:.2f} after rank, {:.2f} "
                          "after node deduplication; busiest rank {:.2f} "
                          "x the mean",
                          summary->rows_per_token, summary->rank_rows_per_token,
                          summary->node_rows_per_token,
                          summary->busiest_rank_over_mean));
}

void AddLosses(const runlog::RunLog& log, Document& document) {
  document.Say("");
  document.Say("loss (nats)");
  document::Chart chart;
  chart.step = log.steps.step;
  chart.curves = {{log.steps.loss_nats, false}};
  document.Add(std::move(chart));
  for (size_t i = 0; i < log.eval.step.size(); ++i) {
    if (i == 0) document.Say("");
    document.Say(fmt::format("step {:>7}  held-out loss {:.4f} nats",
                             log.eval.step[i], log.eval.loss_nats[i]));
  }
}

/// Returns one line; a kind that says that something went wrong stands out.
Document EventDocument(const runlog::Event& event) {
  Document document;
  document.Put("kind", event.kind);
  document.Put("text", event.text);
  document.Put("unix_seconds", event.unix_seconds);
  const auto seconds = static_cast<std::time_t>(
      std::clamp(event.unix_seconds, 0.0, 253402300799.0));
  const bool bad = event.kind == "abort" || event.kind == "damage";
  constexpr size_t kIndent = 2 + 19 + 2 + 10 + 2;  // before the text
  document.Add(Line{.text = event.text,
                    .indent = 2,
                    .hang = kIndent,
                    .lead = fmt::format("{:%Y-%m-%d %H:%M:%S}  {:<10}",
                                        fmt::gmtime(seconds), event.kind),
                    .tone = bad ? document::Tone::kBad : document::Tone::kPlain,
                    .label = "  "});
  return document;
}

/// Adds the experiment and the maker, on one line each, like the arm above
/// them.
void AddMadeBy(const runlog::Provenance& p, Document& document) {
  const std::string experiment = ExperimentText(p);
  if (!experiment.empty()) document.Say("experiment  " + experiment, 2);
  document.Say("made by     " + MakerText(p), 2);
}

}  // namespace

Document ProvenanceDocument(const runlog::Provenance& provenance) {
  Document document;
  for (const runlog::Column& column : runlog::AttributeGroup().columns) {
    runlog::View(provenance).WithValue(column, [&](const auto& value) {
      document.Put(column.field.name, value);
    });
  }
  return document;
}

Document DocumentOf(const ShownRun& run) {
  const runlog::RunLog& log = run.log;
  Document document;
  document.Put("kind", "run log");
  document.Put("file", run.file);
  document.PutObject("provenance", ProvenanceDocument(log.provenance));
  document.Put("is_journal", run.is_journal);
  document.Put("note", run.note);
  AddProvenance(run, document);
  AddExchange(log, document);
  if (run.with_recipe) {
    document.Say("");
    document.Append(RecipeDocument(log.provenance.resolved_recipe));
  }
  AddLosses(log, document);
  document.Append(DocumentOf(run.summary));
  if (!log.events.empty()) {
    document.Say("");
    document.Say("events (UTC)");
  }
  document.PutEach("events", log.events, EventDocument);
  return document;
}

Document DocumentOf(const runlog::ProbeLog& log, const std::string& file) {
  const runlog::Provenance& p = log.provenance;
  const ProbeSummary summary = SummarizeProbe(log);
  Document document;
  document.Put("outcome", summary.passed() ? "PASS" : "FAIL");
  document.Put("kind", "probe log");
  document.Put("file", file);
  document.PutObject("provenance", ProvenanceDocument(p));
  document.Put("arm", p.arm);
  document.Put("recipe", p.recipe);
  document.Put("seed", p.seed);
  document.Say(fmt::format("{}: a probe log", file));
  document.Say("arm         " + RunText(p), 2);
  AddMadeBy(p, document);
  if (!log.reference_recipe.empty()) {
    document.Say(fmt::format("reference   recipe {}, {} tensors compared",
                             log.reference_recipe, log.precision.step.size()),
                 2);
  }
  document.Say("");
  document.Append(DocumentOf(summary));
  document.Append(
      ProbeVerdict(summary, fmt::format("arm {}, seed {}", p.arm, p.seed)));
  return document;
}

Document DocumentOf(const runlog::Ensemble& ensemble, const std::string& file) {
  const runlog::Provenance& p = ensemble.provenance;
  const runlog::Provenance& reference = ensemble.reference_provenance;
  const bool benign = ensemble.kind == runlog::EnsembleKind::kBenign;
  Document document;
  document.Put("kind", "null ensemble");
  document.Put("file", file);
  document.Put("ensemble_kind", EnsembleKindName(ensemble.kind));
  document.Put("digest", ensemble.digest);
  document.PutObject("provenance", ProvenanceDocument(p));
  document.PutObject("reference_provenance", ProvenanceDocument(reference));
  document.Say(fmt::format("{}: a null ensemble of kind {} (digest {})", file,
                           EnsembleKindName(ensemble.kind), ensemble.digest));
  document.Say(
      fmt::format("judges      {}: arm {}, against {}",
                  benign ? "regression" : "precision",
                  KnownParts({p.arm, Prefixed("recipe ", p.recipe)}),
                  benign ? "its approved runs" : "arm " + reference.arm),
      2);
  AddMadeBy(p, document);
  document.Append(DocumentOf(SummarizeEnsemble(ensemble)));
  return document;
}

}  // namespace isoloss::report
