#include "isoloss/runlog/provenance_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string_view>
#include <type_traits>

#include "isoloss/base/digest.h"
#include "isoloss/runlog/recipe_phases.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

using Texts = std::vector<std::string>;

/// Checks that the parameters and tensors of the log are in the graph.
void CheckNames(const RunLog& log, Texts& wrong) {
  const GraphColumns& graph = log.provenance.graph.tensors;
  std::set<std::string_view> parameters(graph.parameter.begin(),
                                        graph.parameter.end());
  parameters.erase("");  // of a tensor that is no parameter's
  const std::set<std::string_view> tensors(graph.name.begin(),
                                           graph.name.end());
  const auto check = [&](const char* group, const auto& names,
                         const auto& known) {
    for (const std::string& name : names) {
      if (known.contains(name)) continue;
      return wrong.push_back(
          fmt::format("/{}/names has `{}`, but /graph does "
                      "not know it",
                      group, name));
    }
  };
  check("parameters", log.parameters.names, parameters);
  check("tensors", log.tensors.names, tensors);
  const std::set<std::string_view> named(log.parameters.names.begin(),
                                         log.parameters.names.end());
  if (log.parameters.names.empty() ||
      (named.size() == log.parameters.names.size() && named == parameters)) {
    return;
  }
  wrong.push_back(fmt::format(
      "/parameters/names has {} names, {} different "
      "ones, but /graph has {} parameters, each once",
      log.parameters.names.size(), named.size(), parameters.size()));
}

/// Returns the names of texts that are empty, though a log of this layout
/// always has them.
std::vector<std::string_view> EmptyTexts(const RunLog& log) {
  std::vector<std::string_view> names;
  for (const Column& column : AttributeGroup().columns) {
    if (column.type != ValueType::kString) continue;
    const Field& field = column.field;
    // Programs of the first layouts did not know all of their texts.
    const int64_t since = field.since > 1 ? field.since : kFullTextVersion;
    const bool is_due = !field.optional && since <= log.schema_version;
    const auto& text = View(log.provenance).At<std::string>(column.offset);
    if (is_due && text.empty()) names.push_back(field.name);
  }
  return names;
}

/// Requires that ranks form whole copies of the experts, and that no node has
/// more ranks than there are.
void CheckMesh(const Provenance& provenance, Texts& wrong) {
  const int64_t copies = provenance.expert_data_parallel;
  if (provenance.ranks_per_node <= provenance.ranks &&
      (copies < 1 || provenance.ranks % copies == 0)) {
    return;
  }
  wrong.push_back(fmt::format(
      "attribute ranks_per_node is {} and expert_data_parallel {}, but there "
      "are {} ranks, which must be as many and a multiple",
      provenance.ranks_per_node, copies, provenance.ranks));
}

/// The experiment says which arms there are, which recipe each has, and when
/// that changes.
void CheckArms(const Provenance& provenance, Texts& wrong) {
  const auto plan_of = [&](const std::string& arm) {
    return RecipePlanOf(provenance.experiment_text, arm,
                        provenance.steps_planned);
  };
  for (const std::string* arm : {&provenance.arm, &provenance.baseline_arm}) {
    if (!plan_of(*arm).name.empty()) continue;
    return wrong.push_back(fmt::format(
        "the log is of arm `{}` and has the baseline `{}`, but experiment_text "
        "has no recipe of arm `{}`",
        provenance.arm, provenance.baseline_arm, *arm));
  }
  const RecipePlan asked = plan_of(provenance.arm);
  if (asked.name != provenance.recipe) {
    return wrong.push_back(
        fmt::format("attribute recipe is \"{}\", but experiment_text gives "
                    "recipe \"{}\" to arm `{}`",
                    provenance.recipe, asked.name, provenance.arm));
  }
  std::vector<int64_t> found;
  for (const RecipePhase& phase : PhasesOf(provenance.graph)) {
    if (phase.first_step > 1) found.push_back(phase.first_step);
  }
  if (found == asked.first_steps) return;
  wrong.push_back(fmt::format(
      "/recipe_phases has phases from steps [{}], but experiment_text asks for "
      "phases from steps [{}]",
      fmt::join(found, ", "), fmt::join(asked.first_steps, ", ")));
}

/// Finds attributes that contradict each other or the graph.
void CheckAttributes(const RunLog& log, Texts& wrong) {
  const Provenance& provenance = log.provenance;
  for (const std::string_view name : EmptyTexts(log)) {
    // A run that was stopped has no last weights.
    if (name == "final_weights_digest" && !provenance.complete) continue;
    wrong.push_back(
        fmt::format("attribute {} is empty, but a log of layout {} "
                    "must have it",
                    name, log.schema_version));
  }
  const std::string digest = DigestToHex(DigestOf(provenance.experiment_text));
  if (log.schema_version >= kFullTextVersion &&
      provenance.experiment_digest != digest) {
    wrong.push_back(
        fmt::format("attribute experiment_digest is '{}', but experiment_text "
                    "has the digest {}",
                    provenance.experiment_digest, digest));
  }
  if (log.schema_version >= kFullTextVersion) CheckArms(provenance, wrong);
  CheckMesh(provenance, wrong);
  const GraphColumns& graph = provenance.graph.tensors;
  double values = 0;
  for (size_t i = 0; i < graph.kind.size(); ++i) {
    if (graph.kind[i] != "parameter") continue;
    values += static_cast<double>(graph.rows[i]) *
              static_cast<double>(graph.columns[i]);
  }
  if (graph.kind.empty() ||
      values == static_cast<double>(provenance.parameters)) {
    return;
  }
  wrong.push_back(
      fmt::format("attribute parameters is {}, but the parameters "
                  "of /graph have {} values",
                  provenance.parameters, values));
}

}  // namespace

std::vector<std::string> WrongProvenance(const RunLog& log) {
  Texts wrong;
  CheckNames(log, wrong);
  CheckAttributes(log, wrong);
  return wrong;
}

}  // namespace isoloss::runlog
