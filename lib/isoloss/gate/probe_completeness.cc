#include "isoloss/gate/probe_completeness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "isoloss/base/saturating.h"
#include "isoloss/compare/first_divergence.h"
#include "isoloss/gate/foreign_probes.h"
#include "isoloss/runlog/recipe_phases.h"

namespace isoloss::gate {
namespace {

using runlog::GraphIndex;
using runlog::ProbeLog;
using Findings = std::vector<std::string>;

/// A graph gives this in rows_of for rows that are a parameter's.
constexpr std::string_view kOfParameter = "parameter";

/// A stale state shows in the second step.
constexpr int64_t kLeastSteps = 2;

constexpr std::string_view kExchangeCase = "exchange";
constexpr std::string_view kEvaluationCase = "evaluation";

/// Every training step has these numbers besides its tensors.
constexpr std::string_view kFigures[] = {"loss_mean", "grad_norm", "lr"};
/// Each router has these numbers.
constexpr std::string_view kRouterFigures[] = {"expert_bias",
                                               "tokens_per_expert"};
/// Case evaluation has only this number.
constexpr const char* kHeldOutLoss = "held_out_loss";

/// Finds a tensor's row of /oracle in one step of one case.
using StepRows = std::map<int64_t, size_t>;
/// The key is a case and a step.
using Steps = std::map<std::pair<int64_t, int64_t>, StepRows>;

const std::string& TensorOf(const ProbeLog& log, size_t row) {
  return log.tensors[static_cast<size_t>(log.oracle.tensor[row])];
}

const std::string& CaseOf(const ProbeLog& log, int64_t probe_case) {
  return log.cases[static_cast<size_t>(probe_case)];
}

/// Knows which values of the model the steps of a probe must compare.
class DueTensors {
 public:
  explicit DueTensors(const GraphIndex& graph) {
    const auto& tensors = graph.tensors();
    for (size_t i = 0; i < tensors.name.size(); ++i) {
      if (tensors.kind[i] == "expert_ids") {
        ++routers_;
        for (const std::string_view figure : kRouterFigures) {
          all_.push_back(fmt::format("{}_{}", tensors.module[i], figure));
        }
        continue;  // /routing compares it
      }
      all_.push_back(tensors.name[i]);
      if (IsExchanged(graph, i)) exchanged_.push_back(tensors.name[i]);
    }
    all_.insert(all_.end(), std::begin(kFigures), std::end(kFigures));
  }

  const std::vector<std::string>& Of(std::string_view probe_case) const {
    if (probe_case == kEvaluationCase) return held_out_;
    return probe_case == kExchangeCase ? exchanged_ : all_;
  }
  /// Whether a case checks all that a step computes.
  static bool IsWide(std::string_view probe_case) {
    return probe_case != kEvaluationCase && probe_case != kExchangeCase;
  }
  int64_t routers() const { return routers_; }

 private:
  /// Whether an exchange makes this tensor's rows from its inputs' rows: from
  /// those of tokens to those of experts, or back.
  static bool IsExchanged(const GraphIndex& graph, size_t place) {
    const auto& rows_of = graph.tensors().rows_of;
    return rows_of[place] != kOfParameter &&
           std::ranges::any_of(graph.InputsOf(place), [&](int64_t input) {
             const std::string& from = rows_of[static_cast<size_t>(input)];
             return from != kOfParameter && from != rows_of[place];
           });
  }

  std::vector<std::string> all_;
  std::vector<std::string> exchanged_;
  std::vector<std::string> held_out_ = {kHeldOutLoss};
  int64_t routers_ = 0;
};

/// Sorts the rows by case and step. A tensor that occurs twice in a step is a
/// finding.
Steps SortRows(const ProbeLog& log, Findings& findings) {
  Steps steps;
  const auto& oracle = log.oracle;
  for (size_t i = 0; i < oracle.step.size(); ++i) {
    StepRows& rows = steps[{oracle.probe_case[i], oracle.step[i]}];
    if (rows.emplace(oracle.tensor[i], i).second) continue;
    findings.push_back(fmt::format("{} occurs twice in step {} of case {}",
                                   TensorOf(log, i), oracle.step[i],
                                   CaseOf(log, oracle.probe_case[i])));
  }
  return steps;
}

// ---- rows ------------------------------------------------------------------

/// Every case and every tensor that the log lists must have a row.
void ReportListedWithoutRows(const ProbeLog& log, Findings& findings) {
  const auto& oracle = log.oracle;
  const std::set<int64_t> cases(oracle.probe_case.begin(),
                                oracle.probe_case.end());
  // A reference arm may know more tensors than the oracle.
  std::set<int64_t> tensors(log.precision.tensor.begin(),
                            log.precision.tensor.end());
  tensors.insert(oracle.tensor.begin(), oracle.tensor.end());
  for (size_t i = 0; i < log.cases.size(); ++i) {
    if (cases.contains(static_cast<int64_t>(i))) continue;
    findings.push_back(fmt::format("case {} has no row", log.cases[i]));
  }
  for (size_t i = 0; i < log.tensors.size(); ++i) {
    if (tensors.contains(static_cast<int64_t>(i))) continue;
    findings.push_back(fmt::format("tensor {} has no row", log.tensors[i]));
  }
}

/// Each step of each case must compare all that the model computes there. Only
/// the first missing tensor is reported, because a log may lack as many as it
/// has rows times tensors.
void ReportMissingRows(const ProbeLog& log, const Steps& steps,
                       const DueTensors& due, Findings& findings) {
  for (const auto& [place, rows] : steps) {
    const std::string& probe_case = CaseOf(log, place.first);
    std::set<std::string_view> compared;
    for (const auto& [tensor, row] : rows) compared.insert(TensorOf(log, row));
    for (const std::string& name : due.Of(probe_case)) {
      if (compared.contains(name)) continue;
      findings.push_back(fmt::format("{} has no row in step {} of case {}",
                                     name, place.second, probe_case));
      break;
    }
  }
}

/// Each step of each case that checks routing must have each router once.
void ReportMissingRouting(const ProbeLog& log, const Steps& steps,
                          const DueTensors& due, Findings& findings) {
  std::map<std::pair<int64_t, int64_t>, std::multiset<int64_t>> routed;
  const auto& routing = log.routing;
  for (size_t i = 0; i < routing.step.size(); ++i) {
    routed[{routing.probe_case[i], routing.step[i]}].insert(routing.layer[i]);
  }
  std::multiset<int64_t> layers;
  for (int64_t layer = 0; layer < due.routers(); ++layer) layers.insert(layer);
  for (const auto& [place, rows] : steps) {
    const std::string& probe_case = CaseOf(log, place.first);
    if (!DueTensors::IsWide(probe_case) || routed[place] == layers) continue;
    findings.push_back(fmt::format(
        "/routing has {} rows in step {} of case {}, but there are {} routers "
        "and each must have one",
        routed[place].size(), place.second, probe_case, due.routers()));
  }
}

// ---- noise and sizes --------------------------------------------------------

/// Gradients of weights are FP32 unless the recipe rounds them, so they have
/// noise. Gradients without any rounding are equal in every bit.
void ReportMissingNoise(const ProbeLog& log, const GraphIndex& graph,
                        Findings& findings) {
  const auto& oracle = log.oracle;
  std::set<std::string> rounded;  // sites, in some phase
  for (const auto& [step, recipe] : runlog::PhasesOf(log.provenance.graph)) {
    for (size_t i = 0; i < recipe.site.size(); ++i) {
      if (recipe.wgrad_dy[i].ends_with(runlog::kRoundedGradient)) {
        rounded.insert(recipe.site[i]);
      }
    }
  }
  for (size_t i = 0; i < oracle.step.size(); ++i) {
    const auto place = graph.Find(TensorOf(log, i));
    // A tensor whose column `other` is not 0 fails because of that.
    if (!place || graph.tensors().kind[*place] != "wgrad" ||
        rounded.contains(graph.tensors().site[*place]) || oracle.other[i] > 0 ||
        oracle.equal[i] == oracle.elements[i] ||
        !std::isnan(oracle.noise_ratio[i])) {
      continue;
    }
    findings.push_back(fmt::format(
        "{} in step {} has no noise_ratio, but it is FP32 and {} of its {} "
        "elements differ",
        TensorOf(log, i), oracle.step[i], oracle.elements[i] - oracle.equal[i],
        oracle.elements[i]));
  }
}

/// A weight, its gradient, its update and the updated weight must have one
/// size. In case plain it must be the graph's, and all weights together must
/// have the model's size.
void ReportBadSizes(const ProbeLog& log, const Steps& steps,
                    const GraphIndex& graph, Findings& findings) {
  const auto& tensors = graph.tensors();
  for (const auto& [place, rows] : steps) {
    const std::string& probe_case = CaseOf(log, place.first);
    const bool plain = probe_case == kPlainCase;
    std::map<std::string_view, int64_t> sizes;  // by parameter
    for (const auto& [tensor, row] : rows) {
      const auto known = graph.Find(TensorOf(log, row));
      if (!known || tensors.rows_of[*known] != kOfParameter) continue;
      const int64_t found = SaturatingAdd(log.oracle.elements[row],
                                          log.oracle.UnseenElements(row));
      const auto size = sizes.emplace(tensors.parameter[*known], found).first;
      const int64_t due = plain ? SaturatingMultiply(tensors.rows[*known],
                                                     tensors.columns[*known])
                                : size->second;
      if (found == due) continue;
      findings.push_back(
          fmt::format("{} has {} elements in step {} of case {}, but {} has {}",
                      TensorOf(log, row), found, place.second, probe_case,
                      size->first, due));
    }
    int64_t parameters = 0;
    for (const auto& [parameter, size] : sizes) {
      parameters = SaturatingAdd(parameters, size);
    }
    if (plain && parameters != log.provenance.parameters) {
      findings.push_back(fmt::format(
          "weights have {} elements in step {} of case {}, but the model has "
          "{} parameters",
          parameters, place.second, kPlainCase, log.provenance.parameters));
    }
  }
}

bool HasOthers(const ProbeLog& log) {
  return std::any_of(log.oracle.other.begin(), log.oracle.other.end(),
                     [](int64_t others) { return others > 0; });
}

}  // namespace

std::vector<std::string> ProbeGaps(const ProbeLog& log) {
  if (!log.provenance.Knows(runlog::Fact::kGraph)) return ForeignGaps(log);
  Findings findings;
  if (log.oracle.step.empty()) {
    findings.push_back("it holds no comparison with the oracle");
    return findings;
  }
  // A run that its own numbers ended early has values in column `other`, and
  // those are the fault.
  if (!log.provenance.complete && !HasOthers(log)) {
    findings.push_back("it is not marked as complete");
  }
  if (std::ranges::count(log.cases, kPlainCase) == 0) {
    findings.push_back(fmt::format("case {} is missing", kPlainCase));
  }
  const std::string wrong =
      log.provenance.graph.empty()
          ? "/graph is missing, but it must say which tensors a step has"
          : WrongGraph(log.provenance.graph);
  if (!wrong.empty()) {
    findings.push_back(wrong);
    return findings;
  }
  const GraphIndex graph(log.provenance.graph);
  const DueTensors due(graph);
  ReportListedWithoutRows(log, findings);
  const Steps steps = SortRows(log, findings);
  ReportMissingRows(log, steps, due, findings);
  ReportMissingRouting(log, steps, due, findings);
  ReportMissingNoise(log, graph, findings);
  ReportBadSizes(log, steps, graph, findings);
  return findings;
}

namespace {

/// Returns the first steps of the phases of a run in one case of its probe.
std::vector<int64_t> FirstStepsIn(const ProbeLog& log,
                                  std::string_view probe_case) {
  std::vector<int64_t> steps;
  for (const auto& phase : runlog::PhasesOf(log.provenance.graph)) {
    steps.push_back(phase.first_step);
  }
  if (probe_case == kPlainCase) return steps;
  return runlog::ProbedFirstSteps(std::move(steps),
                                  log.provenance.steps_planned);
}

/// Returns the steps of each case.
std::map<std::string_view, std::set<int64_t>> StepsOfCases(
    const ProbeLog& log) {
  std::map<std::string_view, std::set<int64_t>> steps;
  for (size_t i = 0; i < log.oracle.step.size(); ++i) {
    steps[CaseOf(log, log.oracle.probe_case[i])].insert(log.oracle.step[i]);
  }
  return steps;
}

/// Returns how many steps of phase `phase` a case lacks.
int64_t MissingSteps(const ProbeLog& log, std::string_view probe_case,
                     size_t phase, const std::set<int64_t>& probed) {
  const std::vector<int64_t> first = FirstStepsIn(log, probe_case);
  const int64_t end = phase + 1 < first.size()
                          ? first[phase + 1]
                          : log.provenance.steps_planned + 1;
  const auto found = std::ranges::count_if(
      probed, [&](int64_t step) { return step >= first[phase] && step < end; });
  return std::min(kLeastSteps, end - first[phase]) - found;
}

}  // namespace

std::vector<std::string> UnprobedPhases(const ProbeLog& log) {
  const auto phases = runlog::PhasesOf(log.provenance.graph);
  const auto told = runlog::PhaseTexts(log.provenance.resolved_recipe);
  const auto steps_of_cases = StepsOfCases(log);
  Findings findings;
  for (size_t i = 1; i < std::min(phases.size(), told.size()); ++i) {
    const bool probed =
        std::ranges::any_of(steps_of_cases, [&](const auto& steps) {
          return DueTensors::IsWide(steps.first) &&
                 MissingSteps(log, steps.first, i, steps.second) <= 0;
        });
    if (probed) continue;
    findings.push_back(fmt::format(
        "recipe {}, which holds from step {} on, was not probed for {} steps; "
        "all cases but {} look at it",
        told[i].recipe, phases[i].first_step, kLeastSteps, kPlainCase));
  }
  return findings;
}

std::vector<std::string> MissingCases(const ProbeLog& log,
                                      const Policy& policy) {
  const bool routes =
      std::ranges::count(log.provenance.graph.tensors.kind, "expert_ids") > 0;
  auto steps = StepsOfCases(log);
  const size_t phases = runlog::PhasesOf(log.provenance.graph).size();
  Findings findings = UnprobedPhases(log);
  for (const std::string& name : policy.probe_cases) {
    if (name == kExchangeCase && !routes) continue;
    // A probe of another program can only have case plain, because that
    // program does not compute our inputs.
    if (name != kPlainCase && !log.provenance.Knows(runlog::Fact::kGraph))
      continue;
    // An evaluation comes after training steps, but is a single step. A plan
    // of another program's run is not known.
    const int64_t due =
        name == kEvaluationCase ? 1
        : log.provenance.Knows(runlog::Fact::kGraph)
            ? std::min(kLeastSteps, log.provenance.steps_planned)
            : kLeastSteps;
    const auto found = static_cast<int64_t>(steps[name].size());
    if (found >= due) {
      const bool is_whole = name == kPlainCase || !DueTensors::IsWide(name);
      for (size_t i = 0; i < phases && !is_whole; ++i) {
        if (MissingSteps(log, name, i, steps[name]) <= 0) continue;
        findings.push_back(fmt::format(
            "case {} lacks steps of phase {} of the recipe", name, i + 1));
      }
      continue;
    }
    findings.push_back(
        found == 0 ? fmt::format("case {} was not probed", name)
                   : fmt::format("case {} was probed for {} step, but at least "
                                 "{} are due",
                                 name, found, due));
  }
  return findings;
}

int64_t PlainStepsDue(const runlog::RunLog& approved,
                      const runlog::RunLog& judged, const Policy& policy) {
  const int64_t all = judged.steps.step.empty() ? 0 : judged.steps.step.back();
  const std::string& weights = judged.provenance.final_weights_digest;
  const auto first = compare::FirstDivergence(approved, judged);
  if (first.has_value()) {
    return std::min(all, std::max(first->step, policy.parted_steps));
  }
  const bool equal =
      !weights.empty() && weights == approved.provenance.final_weights_digest;
  return equal ? 0 : all;
}

}  // namespace isoloss::gate
