#include "isoloss/runlog/domain_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "isoloss/runlog/column_check.h"
#include "isoloss/runlog/probe_log_schema.h"
#include "isoloss/runlog/provenance_check.h"
#include "isoloss/runlog/recording.h"
#include "isoloss/runlog/relations.h"

namespace isoloss::runlog {
namespace {

// ---- probe logs ------------------------------------------------------------

/// Says what is wrong with the element of the largest error; "" if nothing is.
std::string WrongWorst(const OracleColumns& oracle, size_t i) {
  if (oracle.other[i] > 0) return "";
  const bool none = oracle.worst_row[i] == -1;
  if (none != (oracle.worst_column[i] == -1)) {
    return fmt::format(
        "worst_row {} and worst_column {}, but both must be -1 "
        "or neither",
        oracle.worst_row[i], oracle.worst_column[i]);
  }
  // A flip's value may have become infinite, its oracle's is a number.
  const bool fits = none ? std::isnan(oracle.worst_value[i]) &&
                               std::isnan(oracle.worst_expected[i])
                         : !std::isnan(oracle.worst_value[i]) &&
                               std::isfinite(oracle.worst_expected[i]);
  if (!fits) {
    return fmt::format(
        "worst_value {} and worst_expected {}, but they must be "
        "NaN where no element differs, and only there",
        oracle.worst_value[i], oracle.worst_expected[i]);
  }
  if (oracle.worst_ratio[i] > 1) {
    return fmt::format(
        "worst_ratio {}, but it must be at most 1 without "
        "others",
        oracle.worst_ratio[i]);
  }
  return "";
}

/// Requires that each element is equal, a flip or another one, and that the
/// worst element fits. The gate checks a probe's further rules
/// (gate/probe_completeness.h).
std::string WrongOracleRow(const OracleColumns& oracle, size_t i) {
  const double elements = static_cast<double>(oracle.elements[i]);
  const double parts = static_cast<double>(oracle.equal[i]) +
                       static_cast<double>(oracle.flips[i]) +
                       static_cast<double>(oracle.other[i]);
  if (parts != elements) {
    return fmt::format(
        "{} equal elements, {} flips and {} others, but they "
        "must sum to its {} elements",
        oracle.equal[i], oracle.flips[i], oracle.other[i], oracle.elements[i]);
  }
  if (!(oracle.expected_flips[i] <= elements)) {
    return fmt::format(
        "{} expected_flips, but they must lie between 0 and the "
        "{} elements of the tensor",
        oracle.expected_flips[i], oracle.elements[i]);
  }
  return WrongWorst(oracle, i);
}

/// Finds contradictions between the columns that came with layout 2.
std::string WrongOracleShape(const OracleColumns& oracle, size_t i) {
  if (oracle.flips_toward_zero[i] > oracle.flips[i]) {
    return fmt::format("{} flips_toward_zero, but {} flips in all",
                       oracle.flips_toward_zero[i], oracle.flips[i]);
  }
  // The same numbers are added in another order.
  constexpr double kRounding = 1 + 1e-9;
  if (oracle.repeated_flips[i] > oracle.flips[i] ||
      oracle.expected_repeated_flips[i] >
          oracle.expected_flips[i] * kRounding) {
    return fmt::format(
        "{} repeated_flips of {} flips, {} expected of {}, but a part is no "
        "larger than the whole",
        oracle.repeated_flips[i], oracle.flips[i],
        oracle.expected_repeated_flips[i], oracle.expected_flips[i]);
  }
  if (std::isnan(oracle.noise_ratio[i]) !=
      std::isnan(oracle.row_noise_ratio[i])) {
    return fmt::format(
        "noise_ratio {} and row_noise_ratio {}, but both must be NaN or "
        "neither",
        oracle.noise_ratio[i], oracle.row_noise_ratio[i]);
  }
  const int64_t noisy = oracle.noisy_elements[i];
  if (noisy > oracle.elements[i] ||
      (noisy == 0) != std::isnan(oracle.signed_error[i])) {
    return fmt::format(
        "{} noisy_elements and signed_error {}, but there must be at most {}, "
        "and NaN where there are none",
        noisy, oracle.signed_error[i], oracle.elements[i]);
  }
  return "";
}

/// Chance explains at most so many times the expected error: in a tensor of one
/// element, up to the probability kRowChance (oracle/noise_sums.cc).
double MostChance() {
  const double x = -std::log(kRowChance);
  return std::sqrt(1 + 2 * std::sqrt(x) + 2 * x);
}

/// Finds a contradiction of the column that came with layout 3. Chance explains
/// a part of an error, so the ratio beyond it is no larger than noise_ratio,
/// and smaller by a factor of MostChance at most.
std::string WrongTensorNoise(const OracleColumns& oracle, size_t i) {
  constexpr double kRounding = 1 + 1e-9;  // of sums over all elements
  const double ratio = oracle.noise_ratio[i];
  const double beyond_chance = oracle.tensor_noise_ratio[i];
  const double least = ratio / (MostChance() * kRounding);
  if (std::isnan(ratio) == std::isnan(beyond_chance) &&
      !(beyond_chance > ratio) && !(beyond_chance < least)) {
    return "";
  }
  return fmt::format(
      "noise_ratio {} and tensor_noise_ratio {}, but both must be NaN, or the "
      "second must lie between {:.4g} and the first",
      ratio, beyond_chance, least);
}

/// Finds a contradiction of the columns that came with layout 4. Draws leave
/// elements out, and nothing else does.
std::string WrongSample(const OracleColumns& oracle, size_t i) {
  const int64_t unseen = oracle.unseen_elements[i];
  const int64_t draws = oracle.draws[i];
  if ((unseen > 0) == (draws > 0)) return "";
  return fmt::format(
      "{} unseen_elements after {} draws, but there are some after draws and "
      "none without",
      unseen, draws);
}

std::string WrongRoutingRow(const OracleRoutingColumns& routing, size_t i) {
  const double parts = static_cast<double>(routing.flips[i]) +
                       static_cast<double>(routing.other[i]);
  if (parts <= static_cast<double>(routing.tokens[i])) return "";
  return fmt::format("{} flips and {} others, but there are {} tokens",
                     routing.flips[i], routing.other[i], routing.tokens[i]);
}

template <typename Columns>
void CheckRows(const char* group, const Columns& columns,
               std::string (*wrong)(const Columns& columns, size_t row),
               std::vector<Violation>& violations) {
  for (size_t i = 0; i < columns.step.size(); ++i) {
    const std::string text = wrong(columns, i);
    if (text.empty()) continue;
    violations.push_back(
        {Fault::kFile, fmt::format("/{} has in row {} {}. {}", group, i, text,
                                   RemedyOf(Fault::kFile))});
    return;
  }
}

void Add(std::vector<Violation>& violations, const std::string& text) {
  violations.push_back(
      {Fault::kFile, fmt::format("{}. {}", text, RemedyOf(Fault::kFile))});
}

/// Reports the first row that does not come after the row before it.
template <typename Key>
void CheckAscending(const char* group, const char* columns, size_t rows,
                    const Key& key, std::vector<Violation>& violations) {
  for (size_t i = 1; i < rows; ++i) {
    if (key(i - 1) < key(i)) continue;
    Add(violations, fmt::format("/{} has in row {} the place of row {} or one "
                                "before it, but rows must ascend by {}",
                                group, i, i - 1, columns));
    return;
  }
}

/// Requires of an isoloss run that all of its steps were run again.
void CheckPlainSteps(const ProbeLog& log, std::vector<Violation>& violations) {
  for (size_t i = 0; i < log.plain_steps.step.size(); ++i) {
    if (log.plain_steps.step[i] == static_cast<int64_t>(i) + 1) continue;
    Add(violations, fmt::format("/plain_steps has step {} in row {}, but it "
                                "must count 1, 2, 3",
                                log.plain_steps.step[i], i));
    return;
  }
}

/// Requires that each tensor of a step occurs once.
void CheckPrecisionOrder(const PrecisionColumns& precision,
                         std::vector<Violation>& violations) {
  std::set<std::pair<int64_t, int64_t>> seen;
  for (size_t i = 0; i < precision.step.size(); ++i) {
    if (seen.emplace(precision.step[i], precision.tensor[i]).second) {
      continue;
    }
    Add(violations, fmt::format("/precision has tensor {} of step {} again in "
                                "row {}, but must have it once",
                                precision.tensor[i], precision.step[i], i));
    return;
  }
}

/// Rows have the order in which the probe met them, which shows if a step is
/// counted twice or in place of another one.
void CheckOrder(const ProbeLog& log, std::vector<Violation>& violations) {
  const auto& oracle = log.oracle;
  const auto cases = static_cast<int64_t>(log.cases.size());
  const auto place = [&](size_t i) {
    return std::tuple(oracle.probe_case[i], oracle.step[i]);
  };
  std::set<int64_t> tensors;
  for (size_t i = 0; i < oracle.step.size(); ++i) {
    if (i > 0 && place(i) != place(i - 1)) tensors.clear();
    const bool falls = i > 0 && place(i) < place(i - 1);
    const bool known =
        oracle.probe_case[i] < cases &&
        oracle.tensor[i] < static_cast<int64_t>(log.tensors.size());
    if (known && !falls && tensors.insert(oracle.tensor[i]).second) continue;
    Add(violations,
        fmt::format("/oracle has in row {} case {}, step {} and tensor {}, but "
                    "cases and steps must ascend, a tensor be there once in "
                    "each, and /cases and /tensors have both",
                    i, oracle.probe_case[i], oracle.step[i], oracle.tensor[i]));
    break;
  }
  const auto& routing = log.routing;
  CheckAscending(
      "routing", "case, step and layer", routing.step.size(),
      [&](size_t i) {
        return std::tuple(routing.probe_case[i], routing.step[i],
                          routing.layer[i]);
      },
      violations);
  const auto& flips = log.routing_flips;
  CheckAscending(
      "routing_flips", "step and layer", flips.step.size(),
      [&](size_t i) { return std::tuple(flips.step[i], flips.layer[i]); },
      violations);
  CheckPrecisionOrder(log.precision, violations);
}

void CheckComparisons(const ProbeLog& log, std::vector<Violation>& violations) {
  CheckRows("oracle", log.oracle, &WrongOracleRow, violations);
  if (log.schema_version >= 2) {
    CheckRows("oracle", log.oracle, &WrongOracleShape, violations);
  }
  if (log.schema_version >= 3) {
    CheckRows("oracle", log.oracle, &WrongTensorNoise, violations);
  }
  if (log.schema_version >= 4) {
    CheckRows("oracle", log.oracle, &WrongSample, violations);
  }
  CheckRows("routing", log.routing, &WrongRoutingRow, violations);
  CheckOrder(log, violations);
}

/// Returns the places of each router's scores in /tensors: a choice of experts
/// reads them.
std::set<int64_t> PlacesOfScores(const ProbeLog& log) {
  const GraphIndex graph(log.provenance.graph);
  std::set<std::string_view> scores;
  for (size_t i = 0; i < graph.tensors().kind.size(); ++i) {
    if (graph.tensors().kind[i] != "expert_ids") continue;
    for (const int64_t input : graph.InputsOf(i)) {
      scores.insert(graph.tensors().name[static_cast<size_t>(input)]);
    }
  }
  std::set<int64_t> places;
  for (size_t i = 0; i < log.tensors.size(); ++i) {
    if (scores.erase(log.tensors[i]) > 0) {
      places.insert(static_cast<int64_t>(i));
    }
  }
  return places;
}

/// Requires tokens times experts scores, since a router scores each token for
/// each expert.
void CheckRoutedTokens(const ProbeLog& log,
                       std::vector<Violation>& violations) {
  const Recording recording(log.provenance);
  if (!recording.missing_keys().empty()) {
    return Add(
        violations,
        fmt::format("attribute experiment_text has no number for {}, but "
                    "it must say how many experts there are",
                    recording.missing_keys()));
  }
  // Lists for each case and step how many scores each layer has, in the order
  // of the layers.
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> scored;
  const auto& oracle = log.oracle;
  const std::set<int64_t> of_scores = PlacesOfScores(log);
  for (size_t i = 0; i < oracle.step.size(); ++i) {
    if (!of_scores.contains(oracle.tensor[i])) continue;
    scored[{oracle.probe_case[i], oracle.step[i]}].push_back(
        oracle.elements[i]);
  }
  const auto& routing = log.routing;
  for (size_t i = 0; i < routing.step.size(); ++i) {
    const auto& layers = scored[{routing.probe_case[i], routing.step[i]}];
    if (layers.empty()) continue;  // an incomplete probe, which L2 refuses
    const auto layer = static_cast<size_t>(routing.layer[i]);
    const int64_t scores = layer < layers.size() ? layers[layer] : 0;
    if (static_cast<double>(routing.tokens[i]) *
            static_cast<double>(recording.experts()) ==
        static_cast<double>(scores)) {
      continue;
    }
    Add(violations,
        fmt::format("/routing has {} tokens in row {}, but /oracle has {} "
                    "scores of {} experts in case {}, step {} and layer {}",
                    routing.tokens[i], i, scores, recording.experts(),
                    routing.probe_case[i], routing.step[i], layer));
    return;
  }
}

/// A log of this layout must hold a whole graph; judges know the model by it.
void CheckGraph(const ModelGraph& graph, std::vector<Violation>& violations) {
  const std::string wrong = graph.empty()
                                ? "/graph has no rows, but a step has tensors"
                                : WrongGraph(graph);
  if (!wrong.empty()) Add(violations, wrong);
}

}  // namespace

namespace {

/// Only a run that isoloss trained has these attributes; `origin` alone must
/// not spare it the rules of such runs.
void CheckOrigin(const Provenance& provenance,
                 std::vector<Violation>& violations) {
  for (const auto& [name, value] :
       {std::pair("experiment_text", &provenance.experiment_text),
        std::pair("resolved_recipe", &provenance.resolved_recipe),
        std::pair("numerics_digest", &provenance.numerics_digest)}) {
    if (value->empty()) continue;
    return Add(violations,
               fmt::format("attribute origin is '{}', so another program "
                           "trained the run, but the log has the attribute {}, "
                           "which only runs of isoloss have",
                           provenance.origin.format, name));
  }
  if (!provenance.tool_version.starts_with("isoloss ")) return;
  Add(violations,
      fmt::format("attribute origin is '{}', so another program "
                  "trained the run, but tool_version is '{}'",
                  provenance.origin.format, provenance.tool_version));
}

/// Checks another program's run. All that it has must be a value, but nobody
/// knows which columns it should have recorded.
std::vector<Violation> CheckForeign(const RunLog& log) {
  ColumnCheck check(View(log), log.schema_version, [](When) { return false; });
  check.Check(PartOf(&RunLog::provenance, OriginGroup()));
  check.Check(RowGroups());
  CheckOrigin(log.provenance, check.violations);
  return std::move(check.violations);
}

}  // namespace

std::vector<Violation> CheckDomains(const RunLog& log) {
  if (!log.provenance.Knows(Fact::kRecording)) return CheckForeign(log);
  const Recording recording(log.provenance);
  // Bytes between pairs are written at evaluations, and only while the mesh is
  // that of /exchange.
  const bool has_pairs =
      !log.eval.step.empty() && log.eval.step.back() > 0 && !ChangedMesh(log);
  ColumnCheck check(View(log), log.schema_version, [&](When when) {
    return recording.IsDue(when) && (when != When::kPairs || has_pairs);
  });
  check.Check(SchemaOf<RunLog>());
  if (log.schema_version >= kGraphVersion) {
    CheckGraph(log.provenance.graph, check.violations);
    // Names and sums of a damaged graph say nothing new.
    if (check.violations.empty()) {
      for (const std::string& wrong : WrongProvenance(log)) {
        Add(check.violations, wrong);
      }
    }
  }
  if (log.schema_version >= kFullTextVersion &&
      !recording.missing_keys().empty()) {
    check.violations.push_back(
        {Fault::kFile,
         fmt::format("attribute experiment_text has no number for {}, but it "
                     "must say what the run records. {}",
                     recording.missing_keys(), RemedyOf(Fault::kFile))});
  }
  if (!check.lengths_fit) return std::move(check.violations);
  for (const RelationRule& rule : RelationRules()) {
    const uint32_t bit = uint32_t{1} << static_cast<uint32_t>(rule.relation);
    if ((check.spoilt_relations & bit) != 0) continue;
    const std::string broken = rule.broken(log);
    if (broken.empty()) continue;
    check.violations.push_back(
        {rule.fault, fmt::format("{}, but the rule is: {}. {}", broken,
                                 rule.rule, RemedyOf(rule.fault))});
  }
  return std::move(check.violations);
}

namespace {

/// Checks operations that another program recorded. No graph and no experiment
/// says which rows they should have.
std::vector<Violation> CheckForeign(const ProbeLog& log) {
  ColumnCheck check(View(log), kSchemaVersion, [](When) { return true; });
  check.Check(PartOf(&ProbeLog::provenance, OriginGroup()));
  check.Check(ForeignStepGroup());
  check.Check(ComparisonGroups());
  if (check.violations.empty()) CheckComparisons(log, check.violations);
  return std::move(check.violations);
}

}  // namespace

std::vector<Violation> CheckDomains(const ProbeLog& log) {
  if (!log.provenance.Knows(Fact::kGraph)) return CheckForeign(log);
  ColumnCheck check(View(log), kSchemaVersion, [](When) { return true; });
  check.Check(SchemaOf<ProbeLog>());
  if (!log.provenance.graph.empty()) {
    CheckGraph(log.provenance.graph, check.violations);
  }
  if (check.violations.empty()) {
    CheckComparisons(log, check.violations);
    CheckPlainSteps(log, check.violations);
    if (check.violations.empty()) {
      CheckRoutedTokens(log, check.violations);
    }
  }
  return std::move(check.violations);
}

std::vector<std::string> BrokenInSteps(const RunLog& log) {
  std::vector<std::string> broken;
  for (const RelationRule& rule : RelationRules()) {
    const bool of_steps = rule.relation == Relation::kTokensSeen ||
                          rule.relation == Relation::kThroughput ||
                          rule.relation == Relation::kNorms ||
                          rule.relation == Relation::kLoad ||
                          rule.relation == Relation::kDeadExperts;
    if (!of_steps) continue;
    const std::string text = rule.broken(log);
    if (!text.empty()) {
      broken.push_back(fmt::format("{}, but the rule is: {}", text, rule.rule));
    }
  }
  return broken;
}

}  // namespace isoloss::runlog
