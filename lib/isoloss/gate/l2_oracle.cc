#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "isoloss/base/saturating.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/probe_completeness.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/stats/poisson_limit.h"

namespace isoloss::gate {
namespace {

using runlog::ProbeLog;
using Findings = std::vector<std::string>;

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
  Check check{.name = "probe",
              .outcome = Outcome::kPass,
              .quantity = "each probe is whole and of the judged runs"};
  const auto report = [&check](std::span<const Probe> probes,
                               const std::vector<const compare::Run*>& runs) {
    for (const Probe& probe : probes) {
      for (std::string& mismatch : Mismatches(probe, runs)) {
        check.findings.push_back(std::move(mismatch));
      }
      for (const std::string& gap : ProbeGaps(probe.log)) {
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

/// Appends a check if a probe lacks what the policy asks for.
void RequireCases(const Evidence& evidence, Judgement& judgement) {
  Check check{.name = "cases",
              .outcome = Outcome::kInconclusive,
              .next =
                  "probe every case: isoloss probe without --case and "
                  "--steps"};
  for (const auto& probes :
       {evidence.candidate_probes, evidence.baseline_probes}) {
    for (const Probe& probe : probes) {
      for (const std::string& gap : MissingCases(probe.log, judgement.policy)) {
        check.findings.push_back(fmt::format("{}: {}", Label(probe), gap));
      }
    }
  }
  if (check.findings.empty()) return;
  check.quantity = check.findings[0];
  check.evidence = fmt::format("one of {} findings", check.findings.size());
  judgement.checks.push_back(std::move(check));
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
      elements = SaturatingAdd(elements, oracle.elements[i]);
      others = SaturatingAdd(others, oracle.other[i]);
      if (oracle.other[i] > 0) wrong.push_back({probe, i});
    }
  }
  Check check{.name = "elements",
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
        count->flips = SaturatingAdd(count->flips, oracle.flips[i]);
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
  Check check{.name = "flips",
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
  Check check{.name = "noise",
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

std::string RoutingPlace(const Probe& probe, size_t row) {
  const auto& routing = probe.log.routing;
  return fmt::format(
      "MoE layer {} in case {}, step {} of {}: {} of {} tokens unexplained, {} "
      "within rounding",
      routing.layer[row],
      probe.log.cases[static_cast<size_t>(routing.probe_case[row])],
      routing.step[row], Label(probe), routing.other[row], routing.tokens[row],
      routing.flips[row]);
}

/// One sum of two FP32 numbers leaves next to no room for a choice within
/// rounding, so that these are limited as what no model foresees.
Check CheckRouting(const Probes& probes, const Policy& policy) {
  Check check{.name = "routing",
              .outcome = Outcome::kPass,
              .quantity =
                  "tokens sent to experts that their scores do not "
                  "explain:",
              .relation = "at most ",
              .limit = 0};
  int64_t tokens = 0;
  int64_t others = 0;
  int64_t flips = 0;
  for (const Probe* probe : probes) {
    const auto& routing = probe->log.routing;
    for (size_t i = 0; i < routing.step.size(); ++i) {
      tokens = SaturatingAdd(tokens, routing.tokens[i]);
      others = SaturatingAdd(others, routing.other[i]);
      flips = SaturatingAdd(flips, routing.flips[i]);
      if (routing.other[i] + routing.flips[i] == 0) continue;
      check.findings.push_back(RoutingPlace(*probe, i));
    }
  }
  const int64_t limit =
      stats::PoissonUpperLimit(kUnforeseenFlips, policy.flip_alpha);
  check.value = static_cast<double>(others);
  check.evidence = fmt::format(
      "{} tokens; {} chosen within rounding, at most {}", tokens, flips, limit);
  if (others == 0 && flips <= limit) return check;
  check.outcome = Outcome::kFail;
  check.evidence += "; " + check.findings[0];
  check.next = "look at the router's scores, bias and choice of experts";
  return check;
}

/// A probe that ends too early says nothing about what makes two runs part, or
/// hides behind it.
std::optional<Check> EndsTooEarly(const Evidence& evidence,
                                  const Policy& policy) {
  if (policy.question != compare::Question::kRegression) return std::nullopt;
  for (const Probe& probe : evidence.candidate_probes) {
    const auto& steps = probe.log.plain_steps.step;
    const int64_t last = steps.empty() ? 0 : steps.back();
    for (const compare::SeedPair& pair : evidence.pairing->pairs) {
      if (pair.seed != probe.log.provenance.seed) continue;
      const int64_t due =
          PlainStepsDue(pair.baseline->log, pair.candidate->log, policy);
      if (due <= last) continue;
      return Check{.name = "parting",
                   .outcome = Outcome::kInconclusive,
                   .quantity = fmt::format(
                       "the runs of seed {} are not bit-equal, so {} steps of "
                       "case plain are due, but {} looked at {}",
                       pair.seed, due, Label(probe), last),
                   .next = fmt::format("isoloss probe --plain-steps {}", due)};
    }
  }
  return std::nullopt;
}

void JudgeProbes(const Evidence& evidence, Judgement& judgement) {
  if (!evidence.oracle_gap.empty()) {
    judgement.checks.push_back(
        {.name = "recipe",
         .outcome = Outcome::kInconclusive,
         .quantity = fmt::format("the oracle does not understand recipe {}: {}",
                                 judgement.candidate.recipe,
                                 evidence.oracle_gap),
         .next = "docs/numerics.md says what it knows; a recipe in [recipes] "
                 "of the experiment is its own account of itself"});
    return;
  }
  if (evidence.candidate_probes.empty() && evidence.baseline_probes.empty()) {
    return;
  }
  judgement.checks.push_back(CheckProbes(evidence));
  if (judgement.checks.back().outcome == Outcome::kInvalid) {
    return;
  }
  Probes all;
  for (const auto& probes :
       {evidence.candidate_probes, evidence.baseline_probes}) {
    for (const Probe& probe : probes) all.push_back(&probe);
  }
  if (evidence.candidate_probes.empty()) {
    judgement.checks.push_back(
        {.name = "candidate",
         .outcome = Outcome::kInconclusive,
         .quantity = "only the baseline was probed",
         .next = "probe the candidate, too: isoloss probe"});
  }
  RequireCases(evidence, judgement);
  if (auto check = EndsTooEarly(evidence, judgement.policy)) {
    judgement.checks.push_back(std::move(*check));
  }
  judgement.checks.push_back(CheckElements(all));
  judgement.checks.push_back(CheckFlips(all, judgement.policy));
  judgement.checks.push_back(CheckNoise(all, judgement.policy));
  if (std::any_of(all.begin(), all.end(), [](const Probe* probe) {
        return !probe->log.routing.step.empty();
      })) {
    judgement.checks.push_back(CheckRouting(all, judgement.policy));
  }
}

}  // namespace

extern constinit const Level kLevel_l2_oracle = {
    .id = LevelId::l2_oracle,
    .name = "L2",
    .question =
        "does an independent computation in double precision explain every "
        "element of every tensor?",
    .needs = Needs::kProbes,
    .decides = Decides::kBoth,
    .run = &JudgeProbes,
    .remedy =
        "make a probe of the candidate with `isoloss probe` and give it with "
        "--probe"};

}  // namespace isoloss::gate
