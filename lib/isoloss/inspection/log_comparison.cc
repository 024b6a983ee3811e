#include "isoloss/inspection/log_comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/document/json.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/report/divergence_text.h"
#include "isoloss/train/run_description.h"

namespace isoloss::inspection {
namespace {

using document::Json;

/// A table has at most this many rows, evenly spaced, with the first and the
/// last step.
constexpr size_t kRows = 12;
constexpr size_t kTop = 5;

std::string RenderRow(const runlog::StepColumns& a,
                      const runlog::StepColumns& b, size_t i) {
  std::string text = fmt::format("{:>7} {:>12.6f} {:>12.6f} {:>+12.3e}",
                                 a.step[i], a.loss_nats[i], b.loss_nats[i],
                                 b.loss_nats[i] - a.loss_nats[i]);
  if (!a.grad_norm.empty() && !b.grad_norm.empty()) {
    text += fmt::format(
        " {:>10.5f} {:>10.5f} {:>+8.3f} %", a.grad_norm[i], b.grad_norm[i],
        100 * (b.grad_norm[i] - a.grad_norm[i]) / a.grad_norm[i]);
  }
  return text + "\n";
}

std::string RenderTable(const runlog::StepColumns& a,
                        const runlog::StepColumns& b, size_t steps) {
  if (a.loss_nats.empty() || b.loss_nats.empty()) return "";
  std::string text = fmt::format(
      "{:>7} {:>12} {:>12} {:>12} {:>10} {:>10} {:>10}\n", "step", "loss A",
      "loss B", "B - A nats", "grad A", "grad B", "relative");
  const size_t rows = std::min(steps, kRows);
  for (size_t row = 0; row < rows; ++row) {
    text += RenderRow(a, b, rows == 1 ? 0 : row * (steps - 1) / (rows - 1));
  }
  return text;
}

std::string RenderLargest(
    const char* title, const std::vector<compare::LargestDifference>& largest) {
  if (largest.empty()) return "";
  return fmt::format("{}\n{}", title, report::RenderLargest(largest));
}

/// Describes the difference of the curves alone, to the bit.
std::string RenderCurves(const LogComparison& comparison) {
  if (const auto& first = comparison.curves) {
    return fmt::format("First divergence: step {}, {}: {} against {}\n",
                       first->step, first->quantity, first->baseline,
                       first->candidate);
  }
  const size_t of_a = comparison.a->log.steps.step.size();
  const size_t of_b = comparison.b->log.steps.step.size();
  const char* how =
      comparison.report.of_digits ? "equal in every digit" : "equal to the bit";
  if (of_a == of_b) {
    const bool norms = !comparison.a->log.steps.grad_norm.empty() &&
                       !comparison.b->log.steps.grad_norm.empty();
    return fmt::format("Losses{} are {}\n", norms ? " and gradient norms" : "",
                       how);
  }
  return fmt::format(
      "They are {} over the {} common steps; A has {}, B has {}\n", how,
      comparison.steps, of_a, of_b);
}

/// Comparing a log with itself shows nothing.
std::string SamenessText(const LogComparison& comparison) {
  switch (compare::SamenessOf(*comparison.a, *comparison.b)) {
    case compare::Sameness::kFile:
      return "A and B are one file, which is always equal to itself. Give the "
             "log of another run.\n";
    case compare::Sameness::kBytes:
      return "A and B are equal in every byte. If one file is a copy of the "
             "other, nothing was compared.\n";
    case compare::Sameness::kNone:
      break;
  }
  return "";
}

/// If the runs are of two experiments, says how these differ besides arm and
/// seed.
std::string ExperimentsText(const LogComparison& comparison) {
  if (comparison.OneExperiment()) return "";
  const runlog::Provenance& a = comparison.a->log.provenance;
  const runlog::Provenance& b = comparison.b->log.provenance;
  // Only the configuration of B takes part in the comparison.
  runlog::Provenance other = a;
  other.config_digest = b.config_digest;
  other.experiment_text = b.experiment_text;
  return fmt::format(
      "A and B are runs of two experiments, {} (config {}) and {} (config {}), "
      "so they differ by more than their arms (A `before`, B `now`):\n{}",
      a.experiment_name, a.config_digest, b.experiment_name, b.config_digest,
      train::RunDifference(a, other));
}

/// Says where two recipes of one name differ, since users may choose any name.
std::string RecipesText(const LogComparison& comparison) {
  const runlog::Provenance& a = comparison.a->log.provenance;
  const runlog::Provenance& b = comparison.b->log.provenance;
  if (a.recipe != b.recipe ||
      (a.graph.recipe == b.graph.recipe && a.graph.phases == b.graph.phases) ||
      a.graph.recipe.site.empty() || b.graph.recipe.site.empty()) {
    return "";
  }
  return fmt::format(
      "A and B both name their recipe {}, but the recipes differ: what their "
      "products quantise is in /recipe of each log (`isoloss show --recipe`)\n",
      a.recipe);
}

Json RunJson(const compare::Run& run) {
  const runlog::Provenance& p = run.log.provenance;
  return {{"file", run.file}, {"experiment", p.experiment_name},
          {"arm", p.arm},     {"recipe", p.recipe},
          {"seed", p.seed},   {"steps", run.log.steps.step.size()}};
}

Json FirstJson(const compare::DivergenceReport& report) {
  if (!report.first) return nullptr;
  const compare::TensorDivergence& first = *report.first;
  Json json{{"step", first.step},
            {"quantity", first.quantity},
            {"name", first.name},
            {"a", first.a},
            {"b", first.b},
            {"is_tensor", first.is_tensor},
            {"phase", nullptr},
            {"agreeing_before", first.agreeing},
            {"agreeing_tensors", first.agreeing_count}};
  if (first.phase) json["phase"] = compare::PhaseName(*first.phase);
  document::PutInteger(json, "last_equal_step", first.last_equal_step);
  json["may_hide_tensors"] = report.HidesTensors();
  return json;
}

Json LargestJson(const std::vector<compare::LargestDifference>& largest) {
  Json list = Json::array();
  for (const compare::LargestDifference& of : largest) {
    Json entry{{"name", of.name}, {"quantity", of.quantity}, {"step", of.step}};
    document::PutNumber(entry, "a", of.a);
    document::PutNumber(entry, "b", of.b);
    document::PutNumber(entry, "relative", of.relative);
    list.push_back(entry);
  }
  return list;
}

Json RoutingJson(const std::optional<compare::RoutingDifference>& routing) {
  if (!routing) return nullptr;
  return {{"steps", routing->step.size()},
          {"layers", routing->layers},
          {"equal", routing->equal},
          {"choices_per_step_and_layer", routing->choices},
          {"step", routing->step},
          {"flips", routing->flips}};
}

/// Maps the name of each run, made of arm and seed, to the run.
std::map<std::string, const compare::Run*> ByName(
    const std::vector<compare::Run>& runs) {
  std::map<std::string, const compare::Run*> named;
  for (const compare::Run& run : runs) {
    const runlog::Provenance& p = run.log.provenance;
    const std::string name = fmt::format("{}-seed{}", p.arm, p.seed);
    const auto [other, is_first] = named.emplace(name, &run);
    if (is_first) continue;
    ThrowError(ErrorKind::kConfig,
               "compare: {} and {} are both of {}, but a folder may hold one "
               "log of a run to be compared. Give the logs.",
               other->second->file, run.file, name);
  }
  return named;
}

}  // namespace

bool LogComparison::OneExperiment() const {
  return a->log.provenance.config_digest == b->log.provenance.config_digest;
}

bool LogComparison::Equal() const {
  const bool curves_equal = options.tolerance || !curves;
  return curves_equal && !report.first && report.other_extents.empty() &&
         a->log.steps.step.size() == b->log.steps.step.size();
}

LogComparison CompareLogs(const compare::Run& a, const compare::Run& b,
                          const compare::DivergenceOptions& options) {
  const std::vector<int64_t>& of_a = a.log.steps.step;
  const std::vector<int64_t>& of_b = b.log.steps.step;
  LogComparison comparison{&a, &b, options, 0, {}, {}, {}, {}, {}};
  comparison.steps = std::min(of_a.size(), of_b.size());
  if (comparison.steps == 0 ||
      !std::equal(of_a.begin(),
                  of_a.begin() + static_cast<ptrdiff_t>(comparison.steps),
                  of_b.begin())) {
    ThrowError(ErrorKind::kFormat,
               "compare: {} and {} have {} and {} steps with no common start, "
               "so nothing can be set side by side. Compare logs of one "
               "experiment.",
               a.file, b.file, of_a.size(), of_b.size());
  }
  comparison.report = compare::FindDivergence(a.log, b.log, options);
  for (const compare::Run* run : {&a, &b}) {
    const runlog::Provenance& provenance = run->log.provenance;
    if (provenance.origin.loss_half_unit > 0)
      comparison.report.of_digits = true;
    if (!provenance.Knows(runlog::Fact::kExperiment))
      comparison.report.can_zoom = false;
  }
  comparison.curves = compare::FirstStepDivergence(a.log, b.log);
  comparison.parameters =
      compare::LargestParameterDifferences(a.log, b.log, kTop);
  comparison.tensors = compare::LargestTensorDifferences(a.log, b.log, kTop);
  comparison.routing = compare::CompareRouting(a.log.moe, b.log.moe);
  return comparison;
}

std::string RenderComparison(const LogComparison& comparison) {
  std::string text;
  for (const compare::Run* run : {comparison.a, comparison.b}) {
    const runlog::Provenance& p = run->log.provenance;
    text += fmt::format("{}  {}: arm {}{}{}, seed {}, {} steps\n",
                        run == comparison.a ? "A" : "B", run->file, p.arm,
                        p.recipe.empty() ? "" : ", recipe ", p.recipe, p.seed,
                        run->log.steps.step.size());
  }
  text += SamenessText(comparison);
  text += ExperimentsText(comparison);
  text += RecipesText(comparison);
  text += RenderTable(comparison.a->log.steps, comparison.b->log.steps,
                      comparison.steps);
  text += RenderLargest("Parameters that differ most", comparison.parameters);
  text += RenderLargest("Tensors that differ most", comparison.tensors);
  if (comparison.routing) text += report::RenderRouting(*comparison.routing);
  // Curves are compared to the bit, but a tolerance asks for something else.
  if (!comparison.options.tolerance) text += RenderCurves(comparison);
  return text + report::RenderDivergence(comparison.report, comparison.options);
}

document::Json ComparisonJson(const LogComparison& comparison) {
  const compare::DivergenceReport& report = comparison.report;
  Json json{{"a", RunJson(*comparison.a)},
            {"b", RunJson(*comparison.b)},
            {"one_experiment", comparison.OneExperiment()},
            {"equal", comparison.Equal()},
            {"common_steps", comparison.steps}};
  document::PutNumber(json, "tolerance", comparison.options.tolerance);
  json["first_difference"] = FirstJson(report);
  json["tensor_steps"] = report.tensor_steps;
  json["tensors_only_a"] = report.tensors_only_a;
  json["tensors_only_b"] = report.tensors_only_b;
  json["parameters_only_a"] = report.parameters_only_a;
  json["parameters_only_b"] = report.parameters_only_b;
  json["other_extents"] = report.other_extents;
  json["largest_parameter_differences"] = LargestJson(comparison.parameters);
  json["largest_tensor_differences"] = LargestJson(comparison.tensors);
  json["routing"] = RoutingJson(comparison.routing);
  return json;
}

PairedFolders PairFolders(const std::filesystem::path& folder_a,
                          const std::filesystem::path& folder_b,
                          const compare::DivergenceOptions& options) {
  PairedFolders folders;
  folders.a = logs::ReadRuns({folder_a});
  folders.b = logs::ReadRuns({folder_b});
  const auto a = ByName(folders.a);
  const auto b = ByName(folders.b);
  for (const auto& [name, run] : a) {
    if (const auto other = b.find(name); other != b.end()) {
      folders.pairs.push_back(CompareLogs(*run, *other->second, options));
    } else {
      folders.only_a.push_back(name);
    }
  }
  for (const auto& [name, run] : b) {
    if (!a.contains(name)) folders.only_b.push_back(name);
  }
  if (folders.pairs.empty()) {
    ThrowError(ErrorKind::kConfig,
               "compare: {} holds {} and {} holds {}, but two folders are "
               "compared by the runs (arm and seed) that both hold. Give two "
               "logs.",
               folder_a.string(), fmt::join(folders.only_a, ", "),
               folder_b.string(), fmt::join(folders.only_b, ", "));
  }
  return folders;
}

std::string RenderFolders(const PairedFolders& folders) {
  std::string text;
  for (const LogComparison& pair : folders.pairs) {
    text += RenderComparison(pair) + "\n";
  }
  text +=
      fmt::format("{} of {} runs that both folders hold are equal\n",
                  std::ranges::count_if(folders.pairs, &LogComparison::Equal),
                  folders.pairs.size());
  for (const auto& [side, names] :
       {std::pair("A", folders.only_a), std::pair("B", folders.only_b)}) {
    if (names.empty()) continue;
    text += fmt::format("Only {} holds {}\n", side, fmt::join(names, ", "));
  }
  return text;
}

Json FoldersJson(const PairedFolders& folders) {
  Json json{{"equal", folders.Equal()},
            {"only_a", folders.only_a},
            {"only_b", folders.only_b},
            {"pairs", Json::array()}};
  for (const LogComparison& pair : folders.pairs) {
    json["pairs"].push_back(ComparisonJson(pair));
  }
  return json;
}

}  // namespace isoloss::inspection
