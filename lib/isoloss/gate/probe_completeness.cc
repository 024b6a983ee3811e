#include "isoloss/gate/probe_completeness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "isoloss/compare/first_divergence.h"

namespace isoloss::gate {
namespace {

using runlog::ProbeLog;
using Findings = std::vector<std::string>;

constexpr std::string_view kExchangeCase = "exchange";
constexpr std::string_view kEvaluationCase = "evaluation";
constexpr std::string_view kHead = "lm_head";
constexpr std::string_view kRouterSuffix = ".router.gate_output";

/// What a step computes besides its parameters, by a tensor that says that it
/// has the part: `<part><anchor>` needs each `<part><companion>`.
struct Companions {
  std::string_view anchor;
  std::vector<std::string_view> names;
};

const std::vector<Companions>& AllCompanions() {
  static const std::vector<Companions> kCompanions = {
      {kRouterSuffix,
       {".router.scores_output", ".router.topk_weights_output",
        ".router_expert_bias", ".router_tokens_per_expert",
        ".routed_experts_output"}},
      {".attention.wo_output",
       {".attention.inner_attention_output",
        ".attention.inner_attention.q_gradient",
        ".attention.inner_attention.k_gradient",
        ".attention.q_pe_rotated_output", ".attention.k_pe_rotated_output",
        ".attention_residual_output", "_output", "_gradient"}},
  };
  return kCompanions;
}

/// What every training step has, whatever the model.
constexpr std::string_view kOfEveryStep[] = {"loss_output", "loss_mean",
                                             "grad_norm", "lr"};

/// A case that looks at few tensors, by the ends of their names.
struct NarrowCase {
  std::string_view name;
  std::vector<std::string_view> tensors;
};

const std::vector<NarrowCase>& NarrowCases() {
  static const std::vector<NarrowCase> kCases = {
      // What an exchange carries, of each MoE layer.
      {kExchangeCase,
       {".moe.routed_experts.w1_activation",
        ".moe.routed_experts.w3_activation", ".moe.routed_experts.w2_gradient",
        ".moe.routed_experts_output", ".moe.router.topk_weights_gradient"}},
      {kEvaluationCase, {"held_out_loss"}},
  };
  return kCases;
}

/// Rows of /oracle of one step of one case, by tensor.
using StepRows = std::map<int64_t, size_t>;
/// By case and step.
using Steps = std::map<std::pair<int64_t, int64_t>, StepRows>;

const std::string& TensorOf(const ProbeLog& log, size_t row) {
  return log.tensors[static_cast<size_t>(log.oracle.tensor[row])];
}

const std::string& CaseOf(const ProbeLog& log, int64_t probe_case) {
  return log.cases[static_cast<size_t>(probe_case)];
}

/// Null for a case that looks at all tensors.
const NarrowCase* NarrowCaseOf(const ProbeLog& log, int64_t probe_case) {
  const auto found = std::ranges::find(NarrowCases(), CaseOf(log, probe_case),
                                       &NarrowCase::name);
  return found == NarrowCases().end() ? nullptr : &*found;
}

/// Sorts the rows; a tensor that occurs twice is a finding.
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

// ---- tensors ---------------------------------------------------------------

/// The GEMM sites of a resolved recipe: the first word of each line.
std::vector<std::string> SitesOf(const std::string& resolved_recipe) {
  std::vector<std::string> sites;
  std::istringstream lines(resolved_recipe);
  for (std::string line; std::getline(lines, line);) {
    const std::string site = line.substr(0, line.find(' '));
    if (!site.empty()) sites.push_back(site);
  }
  return sites;
}

/// Reports what is absent of the tensors that a step of this model computes.
class TensorList {
 public:
  TensorList(const ProbeLog& log, Findings& findings)
      : known_(log.tensors.begin(), log.tensors.end()), findings_(findings) {}

  void Require(const std::string& name, std::string_view rule) {
    if (known_.contains(name)) return;
    findings_.push_back(
        fmt::format("tensor {} is missing, but {}", name, rule));
  }

  void RequireParts(const std::vector<std::string>& tensors) {
    for (const std::string& name : tensors) {
      for (const Companions& part : AllCompanions()) {
        if (!name.ends_with(part.anchor)) continue;
        const std::string owner =
            name.substr(0, name.size() - part.anchor.size());
        for (const std::string_view companion : part.names) {
          Require(owner + std::string(companion),
                  fmt::format("{} is there and needs it", name));
        }
      }
    }
  }

 private:
  std::set<std::string> known_;
  Findings& findings_;
};

/// Its weight is the embedding's, and so are that weight's gradient and update.
bool HasTiedHead(const std::vector<std::string>& parameters) {
  return !parameters.empty() &&
         std::ranges::count(parameters, fmt::format("{}.weight", kHead)) == 0;
}

void ReportMissingTensors(const ProbeLog& log,
                          const std::vector<std::string>& parameters,
                          Findings& findings) {
  TensorList tensors(log, findings);
  const bool tied = HasTiedHead(parameters);
  for (const std::string& site : SitesOf(log.provenance.resolved_recipe)) {
    for (const char* kind : {"_output", "_dgrad"}) {
      tensors.Require(site + kind, "each GEMM of the recipe must be probed");
    }
    if (tied && site == kHead) continue;
    for (const char* kind : {"_wgrad", "_weight", "_parameter", "_update"}) {
      tensors.Require(site + kind, "each GEMM of the recipe must be probed");
    }
  }
  constexpr std::string_view kWeight = ".weight";
  for (const std::string& parameter : parameters) {
    // Experts' names say their layout; they are sites of the recipe, too.
    if (!parameter.ends_with(kWeight)) continue;
    const std::string module =
        parameter.substr(0, parameter.size() - kWeight.size());
    for (const char* kind :
         {"_output", "_wgrad", "_weight", "_parameter", "_update"}) {
      tensors.Require(module + kind, "each parameter must be probed");
    }
  }
  for (const std::string_view name : kOfEveryStep) {
    tensors.Require(std::string(name), "every step has it");
  }
  tensors.RequireParts(log.tensors);
}

// ---- rows ------------------------------------------------------------------

/// Every case and every tensor that the log lists.
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

/// Figures of the log, which are looked at in the first steps of case plain.
constexpr std::string_view kLogPrefix = "log.";

/// Of all tensors, those that a step of this case must compare.
bool IsDue(const ProbeLog& log, int64_t probe_case, const std::string& tensor) {
  if (tensor.starts_with(kLogPrefix)) return false;
  const NarrowCase* narrow = NarrowCaseOf(log, probe_case);
  return narrow == nullptr ||
         std::ranges::any_of(narrow->tensors, [&](auto suffix) {
           return tensor.ends_with(suffix);
         });
}

/// Case evaluation asks for a number that no training step has.
bool IsKnown(const ProbeLog& log, const StepRows& plain, int64_t probe_case,
             int64_t tensor) {
  return plain.contains(tensor) ||
         log.tensors[static_cast<size_t>(tensor)].starts_with(kLogPrefix) ||
         (NarrowCaseOf(log, probe_case) != nullptr &&
          IsDue(log, probe_case, log.tensors[static_cast<size_t>(tensor)]));
}

/// Each step of each case compares what the first step of case plain does.
void ReportMissingRows(const ProbeLog& log, const Steps& steps,
                       Findings& findings) {
  const auto plain =
      std::find_if(steps.begin(), steps.end(), [&](const auto& of_step) {
        return CaseOf(log, of_step.first.first) == kPlainCase;
      });
  if (plain == steps.end()) return;
  for (const auto& [place, rows] : steps) {
    const auto& [probe_case, step] = place;
    for (const auto& [tensor, row] : plain->second) {
      const std::string& name = TensorOf(log, row);
      if (rows.contains(tensor) || !IsDue(log, probe_case, name)) continue;
      findings.push_back(fmt::format("{} has no row in step {} of case {}",
                                     name, step, CaseOf(log, probe_case)));
    }
    for (const auto& [tensor, row] : rows) {
      if (IsKnown(log, plain->second, probe_case, tensor)) continue;
      findings.push_back(fmt::format(
          "{} in step {} of case {} has no row in step {} of case {}",
          TensorOf(log, row), step, CaseOf(log, probe_case),
          plain->first.second, kPlainCase));
    }
  }
}

/// Each router in each step of each case that checks routing, once.
void ReportMissingRouting(const ProbeLog& log, const Steps& steps,
                          Findings& findings) {
  const auto layers =
      std::count_if(log.tensors.begin(), log.tensors.end(),
                    [](const auto& t) { return t.ends_with(kRouterSuffix); });
  std::map<std::pair<int64_t, int64_t>, std::multiset<int64_t>> routed;
  const auto& routing = log.routing;
  for (size_t i = 0; i < routing.step.size(); ++i) {
    routed[{routing.probe_case[i], routing.step[i]}].insert(routing.layer[i]);
  }
  std::multiset<int64_t> due;
  for (int64_t layer = 0; layer < layers; ++layer) due.insert(layer);
  for (const auto& [place, rows] : steps) {
    if (NarrowCaseOf(log, place.first) != nullptr || routed[place] == due) {
      continue;
    }
    findings.push_back(fmt::format(
        "/routing has {} rows in step {} of case {}, but there are {} routers "
        "and each must have one",
        routed[place].size(), place.second, CaseOf(log, place.first), layers));
  }
}

// ---- noise and sizes --------------------------------------------------------

/// Gradients of weights are FP32, so they have a noise; those without any
/// rounding are equal in every bit.
void ReportMissingNoise(const ProbeLog& log, Findings& findings) {
  const auto& oracle = log.oracle;
  for (size_t i = 0; i < oracle.step.size(); ++i) {
    // What has others fails by them.
    if (!TensorOf(log, i).ends_with("_wgrad") || oracle.other[i] > 0 ||
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

/// A weight, its gradient, its update and itself after it have one size, and
/// those of case plain together that of the model.
void ReportBadSizes(const ProbeLog& log, const Steps& steps,
                    Findings& findings) {
  constexpr std::string_view kGradient = "_wgrad";
  const auto& elements = log.oracle.elements;
  for (const auto& [place, rows] : steps) {
    std::map<std::string_view, int64_t> sizes;
    for (const auto& [tensor, row] : rows) {
      sizes[TensorOf(log, row)] = elements[row];
    }
    int64_t parameters = 0;
    for (const auto& [name, size] : sizes) {
      if (!name.ends_with(kGradient)) continue;
      parameters += size;
      const std::string module(name.substr(0, name.size() - kGradient.size()));
      for (const char* kind : {"_parameter", "_update", "_weight"}) {
        const auto like = sizes.find(module + kind);
        if (like == sizes.end() || like->second == size) continue;
        findings.push_back(fmt::format(
            "{} has {} elements in step {} of case {}, but {} has {}", name,
            size, place.second, CaseOf(log, place.first), like->first,
            like->second));
      }
    }
    if (CaseOf(log, place.first) == kPlainCase &&
        parameters != log.provenance.parameters) {
      findings.push_back(fmt::format(
          "gradients of weights have {} elements in step {} of case {}, but "
          "the model has {} parameters",
          parameters, place.second, kPlainCase, log.provenance.parameters));
    }
  }
}

bool HasOthers(const ProbeLog& log) {
  return std::any_of(log.oracle.other.begin(), log.oracle.other.end(),
                     [](int64_t others) { return others > 0; });
}

}  // namespace

std::vector<std::string> ProbeGaps(const ProbeLog& log,
                                   const std::vector<std::string>& parameters) {
  Findings findings;
  if (log.oracle.step.empty()) {
    findings.push_back("it holds no comparison with the oracle");
    return findings;
  }
  // A run that its own numbers ended early leaves others; those are the fault.
  if (!log.provenance.complete && !HasOthers(log)) {
    findings.push_back("it is not marked as complete");
  }
  if (std::ranges::count(log.cases, kPlainCase) == 0) {
    findings.push_back(fmt::format("case {} is missing", kPlainCase));
  }
  ReportMissingTensors(log, parameters, findings);
  ReportListedWithoutRows(log, findings);
  const Steps steps = SortRows(log, findings);
  ReportMissingRows(log, steps, findings);
  ReportMissingRouting(log, steps, findings);
  ReportMissingNoise(log, findings);
  ReportBadSizes(log, steps, findings);
  return findings;
}

std::vector<std::string> MissingCases(const ProbeLog& log,
                                      const Policy& policy) {
  constexpr int64_t kLeastSteps = 2;
  const bool routes =
      std::any_of(log.tensors.begin(), log.tensors.end(), [](const auto& name) {
        return name.find(".router.") != std::string::npos;
      });
  std::map<std::string_view, std::set<int64_t>> steps;
  for (size_t i = 0; i < log.oracle.step.size(); ++i) {
    steps[CaseOf(log, log.oracle.probe_case[i])].insert(log.oracle.step[i]);
  }
  Findings findings;
  for (const std::string& name : policy.probe_cases) {
    if (name == kExchangeCase && !routes) continue;
    // An evaluation lies behind training steps, but is one by itself.
    const int64_t due =
        name == kEvaluationCase
            ? 1
            : std::min(kLeastSteps, log.provenance.steps_planned);
    const auto found = static_cast<int64_t>(steps[name].size());
    if (found >= due) continue;
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
