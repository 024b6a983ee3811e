#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "isoloss/gate/ladder.h"
#include "isoloss/stats/poisson_limit.h"

namespace isoloss::gate {
namespace {

using runlog::ProbeLog;
using Findings = std::vector<std::string>;

constexpr std::string_view kPlainCase = "plain";

// ---- is the probe whole? ---------------------------------------------------

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

/// Tensors without which a GEMM of the recipe went unprobed.
void ReportMissingTensors(const ProbeLog& log, Findings& findings) {
  const std::set<std::string> known(log.tensors.begin(), log.tensors.end());
  for (const std::string& site : SitesOf(log.provenance.resolved_recipe)) {
    for (const char* kind : {"_output", "_dgrad", "_wgrad"}) {
      if (known.contains(site + kind)) continue;
      findings.push_back(fmt::format(
          "tensor {}{} is missing, but each GEMM of the recipe must be probed",
          site, kind));
    }
  }
}

/// Which tensors each step of each case compared; every one of them once.
void ReportMissingRows(const ProbeLog& log, Findings& findings) {
  const auto& oracle = log.oracle;
  std::map<std::pair<int64_t, int64_t>, std::set<int64_t>> steps;
  std::set<int64_t> cases;
  // A reference arm may know more tensors than the oracle.
  std::set<int64_t> tensors(log.precision.tensor.begin(),
                            log.precision.tensor.end());
  for (size_t i = 0; i < oracle.step.size(); ++i) {
    cases.insert(oracle.probe_case[i]);
    tensors.insert(oracle.tensor[i]);
    if (!steps[{oracle.probe_case[i], oracle.step[i]}]
             .insert(oracle.tensor[i])
             .second) {
      findings.push_back(fmt::format(
          "{} occurs twice in step {} of case {}",
          log.tensors[static_cast<size_t>(oracle.tensor[i])], oracle.step[i],
          log.cases[static_cast<size_t>(oracle.probe_case[i])]));
    }
  }
  for (size_t i = 0; i < log.cases.size(); ++i) {
    if (cases.contains(static_cast<int64_t>(i))) continue;
    findings.push_back(fmt::format("case {} has no row", log.cases[i]));
  }
  for (size_t i = 0; i < log.tensors.size(); ++i) {
    if (tensors.contains(static_cast<int64_t>(i))) continue;
    findings.push_back(fmt::format("tensor {} has no row", log.tensors[i]));
  }
  for (auto at = steps.begin(); at != steps.end(); ++at) {
    const auto first = steps.lower_bound({at->first.first, INT64_MIN});
    if (first->second == at->second) continue;
    findings.push_back(fmt::format(
        "step {} of case {} has {} tensors, step {} has {}", at->first.second,
        log.cases[static_cast<size_t>(at->first.first)], at->second.size(),
        first->first.second, first->second.size()));
  }
}

bool CountsFit(const runlog::OracleColumns& oracle, size_t i) {
  const int64_t parts[] = {oracle.equal[i], oracle.flips[i], oracle.other[i]};
  const bool negative = std::any_of(std::begin(parts), std::end(parts),
                                    [](int64_t count) { return count < 0; });
  const double expected = oracle.expected_flips[i];
  return !negative && oracle.elements[i] > 0 &&
         parts[0] + parts[1] + parts[2] == oracle.elements[i] &&
         std::isfinite(expected) && expected >= 0 &&
         !std::isnan(oracle.worst_ratio[i]) &&
         (parts[2] > 0 || oracle.worst_ratio[i] <= 1);
}

void ReportBadCounts(const ProbeLog& log, Findings& findings) {
  for (size_t i = 0; i < log.oracle.step.size(); ++i) {
    if (CountsFit(log.oracle, i)) continue;
    findings.push_back(
        fmt::format("counts of {} in step {} do not add up",
                    log.tensors[static_cast<size_t>(log.oracle.tensor[i])],
                    log.oracle.step[i]));
  }
  for (size_t i = 0; i < log.routing.step.size(); ++i) {
    const auto& routing = log.routing;
    if (routing.flips[i] >= 0 && routing.other[i] >= 0 &&
        routing.flips[i] + routing.other[i] <= routing.tokens[i]) {
      continue;
    }
    findings.push_back(
        fmt::format("counts of MoE layer {} in step {} do not "
                    "add up",
                    routing.layer[i], routing.step[i]));
  }
}

bool HasOthers(const ProbeLog& log) {
  return std::any_of(log.oracle.other.begin(), log.oracle.other.end(),
                     [](int64_t others) { return others > 0; });
}

Findings Incompleteness(const ProbeLog& log) {
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
  ReportMissingTensors(log, findings);
  ReportMissingRows(log, findings);
  ReportBadCounts(log, findings);
  const bool routes = std::any_of(
      log.tensors.begin(), log.tensors.end(), [](const std::string& name) {
        return name.find(".router.") != std::string::npos;
      });
  if (routes && log.routing.step.empty()) {
    findings.push_back("there are routers, but /routing has no row");
  }
  return findings;
}

/// Probes of two arms must have asked the same.
void ReportUnlike(const Probe& probe, const Probe& other, Findings& findings) {
  const auto compare = [&](const char* what, const auto& a, const auto& b) {
    const std::set<std::string> these(a.begin(), a.end());
    const std::set<std::string> those(b.begin(), b.end());
    if (these == those) return;
    findings.push_back(fmt::format("{}: {} are not those of {}", Label(probe),
                                   what, Label(other)));
  };
  compare("cases", probe.log.cases, other.log.cases);
  compare("tensors", probe.log.tensors, other.log.tensors);
}

Check CheckProbes(const Evidence& evidence) {
  Check check{.level = "L2",
              .name = "probe",
              .outcome = Outcome::kPass,
              .quantity = "each probe is whole and of the judged runs"};
  const auto report = [&check](std::span<const Probe> probes,
                               const std::vector<const compare::Run*>& runs) {
    for (const Probe& probe : probes) {
      for (std::string& mismatch : Mismatches(probe, runs)) {
        check.findings.push_back(std::move(mismatch));
      }
      for (const std::string& gap : Incompleteness(probe.log)) {
        check.findings.push_back(fmt::format("{}: {}", Label(probe), gap));
      }
      ReportUnlike(probe, probes.front(), check.findings);
    }
  };
  report(evidence.candidate_probes, evidence.pairing->candidate);
  report(evidence.baseline_probes, evidence.pairing->baseline);
  check.evidence =
      fmt::format("{} probes", evidence.candidate_probes.size() +
                                   evidence.baseline_probes.size());
  if (check.findings.empty()) return check;
  check.outcome = Outcome::kInvalid;
  check.quantity = check.findings[0];
  check.evidence = fmt::format("one of {} findings", check.findings.size());
  check.next = "probe again: isoloss probe";
  return check;
}

// ---- what the oracle says --------------------------------------------------

using Probes = std::vector<const Probe*>;

/// A tensor of a step that is not what the oracle says.
struct Wrong {
  const Probe* probe;
  size_t row;
};

std::string NameOf(const Wrong& wrong) {
  const ProbeLog& log = wrong.probe->log;
  return log.tensors[static_cast<size_t>(log.oracle.tensor[wrong.row])];
}

std::string PlaceOf(const Wrong& wrong) {
  const ProbeLog& log = wrong.probe->log;
  const auto& oracle = log.oracle;
  return fmt::format(
      "{} in case {}, step {} of {}: row {}, column {} is {:.9g}, the oracle "
      "has {:.9g} ({:.3g} times the bound of any order of summation); {} of {} "
      "elements are wrong",
      NameOf(wrong),
      log.cases[static_cast<size_t>(oracle.probe_case[wrong.row])],
      oracle.step[wrong.row], Label(*wrong.probe), oracle.worst_row[wrong.row],
      oracle.worst_column[wrong.row], oracle.worst_value[wrong.row],
      oracle.worst_expected[wrong.row], oracle.worst_ratio[wrong.row],
      oracle.other[wrong.row], oracle.elements[wrong.row]);
}

/// The order of computation: what is wrong first may be why the rest is.
bool ComputedBefore(const Wrong& a, const Wrong& b) {
  const auto key = [](const Wrong& wrong) {
    const auto& oracle = wrong.probe->log.oracle;
    return std::tuple(oracle.step[wrong.row], oracle.tensor[wrong.row],
                      oracle.probe_case[wrong.row]);
  };
  return key(a) < key(b);
}

std::string WhereToLook(const std::vector<Wrong>& wrong) {
  const auto first =
      std::min_element(wrong.begin(), wrong.end(), ComputedBefore);
  return fmt::format("the first wrong tensor in order of computation is {}",
                     PlaceOf(*first));
}

Check CheckElements(const Probes& probes) {
  std::vector<Wrong> wrong;
  int64_t elements = 0;
  int64_t others = 0;
  for (const Probe* probe : probes) {
    const auto& oracle = probe->log.oracle;
    for (size_t i = 0; i < oracle.step.size(); ++i) {
      elements += oracle.elements[i];
      others += oracle.other[i];
      if (oracle.other[i] > 0) wrong.push_back({probe, i});
    }
  }
  Check check{.level = "L2",
              .name = "elements",
              .outcome = wrong.empty() ? Outcome::kPass : Outcome::kFail,
              .quantity = "elements that no order of summation explains:",
              .value = static_cast<double>(others),
              .relation = "at most ",
              .limit = 0,
              .evidence = fmt::format("{} elements", elements)};
  if (wrong.empty()) return check;
  const auto ratio = [](const Wrong& w) {
    return w.probe->log.oracle.worst_ratio[w.row];
  };
  std::stable_sort(
      wrong.begin(), wrong.end(),
      [&](const Wrong& a, const Wrong& b) { return ratio(a) > ratio(b); });
  for (const Wrong& w : wrong) check.findings.push_back(PlaceOf(w));
  check.evidence =
      fmt::format("in {} tensors; worst: {}", wrong.size(), check.findings[0]);
  check.next = WhereToLook(wrong);
  return check;
}

/// A tensor that sums exactly is expected to flip nowhere; what no model of its
/// noise foresees must not weigh more than anything else.
constexpr double kUnforeseenFlips = 1;

/// Flips of one tensor of less than FP32 over all cases, steps and probes.
struct FlipCount {
  int64_t flips = 0;
  double expected = 0;
};

Check CheckFlips(const Probes& probes, const Policy& policy) {
  std::map<std::string, FlipCount> counts;
  FlipCount total;
  for (const Probe* probe : probes) {
    const auto& oracle = probe->log.oracle;
    for (size_t i = 0; i < oracle.step.size(); ++i) {
      // Hardly an element of an FP32 tensor is equal: CheckNoise judges those.
      if (!std::isnan(oracle.noise_ratio[i])) continue;
      const auto& name =
          probe->log.tensors[static_cast<size_t>(oracle.tensor[i])];
      for (FlipCount* count : {&counts[name], &total}) {
        count->flips += oracle.flips[i];
        count->expected += oracle.expected_flips[i];
      }
    }
  }
  // The tensors and their total: one family.
  const double alpha =
      policy.flip_alpha / (static_cast<double>(counts.size()) + 1);
  const auto limit_of = [&](const FlipCount& count) {
    return stats::PoissonUpperLimit(
        kUnforeseenFlips + policy.flip_factor * count.expected, alpha);
  };
  Check check{.level = "L2",
              .name = "flips",
              .outcome = Outcome::kPass,
              .quantity = "roundings that fell the other way:",
              .value = static_cast<double>(total.flips),
              .relation = "at most ",
              .limit = static_cast<double>(limit_of(total)),
              .evidence = fmt::format("{:.3g} expected, {} tensors",
                                      total.expected, counts.size())};
  const auto report = [&](const std::string& name, const FlipCount& count) {
    if (count.flips <= limit_of(count)) return;
    check.findings.push_back(
        fmt::format("{}: {} flips, {:.3g} expected, limit {}", name,
                    count.flips, count.expected, limit_of(count)));
  };
  report("all tensors", total);
  for (const auto& [name, count] : counts) report(name, count);
  if (check.findings.empty()) return check;
  check.outcome = Outcome::kFail;
  check.evidence += "; " + check.findings[0];
  check.next = "look at how this tensor is summed and rounded";
  return check;
}

/// How far above 1 chance takes the root mean square of n normal errors, with
/// probability alpha at most: chi-square is at most n + 2 sqrt(n x) + 2 x with
/// x = ln(1 / alpha).
/// Source   Laurent, Massart, Annals of Statistics 28 (2000), lemma 1.
double ChanceOf(int64_t n, double alpha) {
  const double share = -std::log(alpha) / static_cast<double>(n);
  return std::sqrt(1 + 2 * std::sqrt(share) + 2 * share);
}

int64_t NoisyTensors(const Probes& probes) {
  int64_t tensors = 0;
  for (const Probe* probe : probes) {
    const auto& ratios = probe->log.oracle.noise_ratio;
    // NaN: rounded to fewer bits.
    tensors += std::count_if(ratios.begin(), ratios.end(),
                             [](double ratio) { return !std::isnan(ratio); });
  }
  return tensors;
}

Check CheckNoise(const Probes& probes, const Policy& policy) {
  Check check{.level = "L2",
              .name = "noise",
              .outcome = Outcome::kPass,
              .quantity =
                  "largest error of FP32 tensors over that of FP32 sums, "
                  "beyond chance:",
              .value = 0.0,
              .relation = "at most ",
              .limit = policy.noise_ratio_limit,
              .unit = "x"};
  std::vector<Wrong> noisy;
  std::optional<Wrong> worst;
  const int64_t tensors = NoisyTensors(probes);
  const double alpha = policy.flip_alpha / static_cast<double>(tensors + 1);
  for (const Probe* probe : probes) {
    const auto& ratios = probe->log.oracle.noise_ratio;
    for (size_t i = 0; i < ratios.size(); ++i) {
      if (std::isnan(ratios[i])) continue;
      const double ratio =
          ratios[i] / ChanceOf(probe->log.oracle.elements[i], alpha);
      if (!worst || ratio > *check.value) {
        check.value = ratio;
        worst = {probe, i};
      }
      if (!(ratio <= policy.noise_ratio_limit)) {
        noisy.push_back({probe, i});
        check.findings.push_back(
            fmt::format("{} in step {} of {}: {:.3g} times", NameOf({probe, i}),
                        probe->log.oracle.step[i], Label(*probe), ratio));
      }
    }
  }
  check.evidence = fmt::format("{} FP32 tensors", tensors);
  if (worst) check.evidence += ", worst " + NameOf(*worst);
  if (noisy.empty()) return check;
  check.outcome = Outcome::kFail;
  check.next = fmt::format(
      "the first noisy tensor in order of computation is {}: something adds in "
      "fewer bits than FP32",
      NameOf(*std::min_element(noisy.begin(), noisy.end(), ComputedBefore)));
  return check;
}

Check CheckRouting(const Probes& probes) {
  Check check{.level = "L2",
              .name = "routing",
              .outcome = Outcome::kPass,
              .quantity =
                  "tokens sent to experts that their scores do not "
                  "explain:",
              .relation = "at most ",
              .limit = 0};
  int64_t tokens = 0;
  int64_t others = 0;
  for (const Probe* probe : probes) {
    const auto& routing = probe->log.routing;
    for (size_t i = 0; i < routing.step.size(); ++i) {
      tokens += routing.tokens[i];
      others += routing.other[i];
      if (routing.other[i] == 0) continue;
      check.findings.push_back(fmt::format(
          "MoE layer {} in case {}, step {} of {}: {} of {} tokens",
          routing.layer[i],
          probe->log.cases[static_cast<size_t>(routing.probe_case[i])],
          routing.step[i], Label(*probe), routing.other[i], routing.tokens[i]));
    }
  }
  check.value = static_cast<double>(others);
  check.evidence = fmt::format("{} tokens", tokens);
  if (check.findings.empty()) return check;
  check.outcome = Outcome::kFail;
  check.evidence += "; " + check.findings[0];
  check.next = "look at the router's scores, bias and choice of experts";
  return check;
}

}  // namespace

Climb ClimbOracle(const Evidence& evidence, Judgement& judgement) {
  if (evidence.candidate_probes.empty() && evidence.baseline_probes.empty()) {
    return Climb::kGoOn;
  }
  judgement.checks.push_back(CheckProbes(evidence));
  if (judgement.checks.back().outcome == Outcome::kInvalid) {
    return Climb::kGoOn;
  }
  Probes all;
  for (const auto& probes :
       {evidence.candidate_probes, evidence.baseline_probes}) {
    for (const Probe& probe : probes) all.push_back(&probe);
  }
  if (evidence.candidate_probes.empty()) {
    judgement.checks.push_back(
        {.level = "L2",
         .name = "candidate",
         .outcome = Outcome::kInconclusive,
         .quantity = "only the baseline was probed",
         .next = "probe the candidate, too: isoloss probe"});
  }
  judgement.checks.push_back(CheckElements(all));
  judgement.checks.push_back(CheckFlips(all, judgement.policy));
  judgement.checks.push_back(CheckNoise(all, judgement.policy));
  if (std::any_of(all.begin(), all.end(), [](const Probe* probe) {
        return !probe->log.routing.step.empty();
      })) {
    judgement.checks.push_back(CheckRouting(all));
  }
  return Climb::kGoOn;
}

}  // namespace isoloss::gate
