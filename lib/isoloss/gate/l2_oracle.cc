#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "isoloss/base/saturating.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/foreign_probes.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/oracle_figures.h"
#include "isoloss/gate/oracle_flips.h"
#include "isoloss/gate/oracle_noise.h"
#include "isoloss/gate/probe_completeness.h"
#include "isoloss/gate/probe_rows.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/stats/poisson_limit.h"

namespace isoloss::gate {
namespace {

constexpr const char* kRecordOperations =
    "record operations of two steps or more of the run, and give those files "
    "to `isoloss check-tensors --out`";

using Findings = std::vector<std::string>;

/// Probes of two arms must hold the same cases and tensors.
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
  Check check{
      .name = "probe",
      .outcome = Outcome::kPass,
      .quantity = evidence.pairing->Knows(runlog::Fact::kGraph)
                      ? "each probe is whole and of the judged runs"
                      : "losses and what else is told bind each probe to "
                        "its run"};
  const auto report = [&check](std::span<const Probe> probes,
                               const std::vector<const compare::Run*>& runs) {
    for (const Probe& probe : probes) {
      for (std::string& mismatch : Mismatches(probe, runs)) {
        check.findings.push_back(std::move(mismatch));
      }
      for (const std::string& gap : ProbeGaps(probe.log)) {
        check.findings.push_back(fmt::format("{}: {}", Label(probe), gap));
      }
      // Users choose the operations that such a log records.
      if (!probe.log.provenance.Knows(runlog::Fact::kGraph)) continue;
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
  check.next = evidence.pairing->Knows(runlog::Fact::kExperiment)
                   ? "probe again: isoloss lab probe"
                   : kRecordOperations;
  return check;
}

/// Appends a check if a probe lacks what the policy asks for.
void RequireCases(const Evidence& evidence, const Policy& policy,
                  LevelFindings& found) {
  Check check{
      .name = "cases",
      .outcome = Outcome::kInconclusive,
      .next = evidence.pairing->Knows(runlog::Fact::kExperiment)
                  ? "probe every case: isoloss lab probe without --case "
                    "and --steps"
                  : kRecordOperations};
  for (const auto& probes :
       {evidence.candidate_probes, evidence.baseline_probes}) {
    for (const Probe& probe : probes) {
      for (const std::string& gap : MissingCases(probe.log, policy)) {
        check.findings.push_back(fmt::format("{}: {}", Label(probe), gap));
      }
    }
  }
  if (check.findings.empty()) return;
  check.quantity = check.findings[0];
  check.evidence = fmt::format("one of {} findings", check.findings.size());
  found.checks.push_back(std::move(check));
}

// ---- what the oracle says --------------------------------------------------

std::string PlaceOf(const ProbeRow& wrong) {
  const auto& oracle = wrong.oracle();
  return fmt::format(
      "{}: row {}, column {} is {:.9g}, the oracle has {:.9g} ({:.3g} times "
      "the "
      "bound of any order of summation); {} of {} elements are wrong",
      wrong.Place(), oracle.worst_row[wrong.row],
      oracle.worst_column[wrong.row], oracle.worst_value[wrong.row],
      oracle.worst_expected[wrong.row], oracle.worst_ratio[wrong.row],
      oracle.other[wrong.row], oracle.elements[wrong.row]);
}

std::string WhereToLook(const std::vector<ProbeRow>& wrong) {
  const auto first =
      std::min_element(wrong.begin(), wrong.end(), ComputedBefore);
  return fmt::format("the first wrong tensor in order of computation is {}",
                     PlaceOf(*first));
}

/// Returns " of cases plain, tails" if a policy asks for fewer than all cases.
std::string OfFewerCases(const Policy& policy) {
  if (policy.probe_cases.size() >= kProbeCases.size()) return {};
  return fmt::format(" of cases {}", fmt::join(policy.probe_cases, ", "));
}

/// Returns how many elements a sample is of, and what it may miss.
std::string OfAllElements(int64_t elements, int64_t unseen,
                          double missed_share) {
  if (unseen == 0) return {};
  return fmt::format(
      " of {}, among which {:.2g} % wrong ones of a tensor would have been "
      "missed with a chance of {:.3g} %",
      SaturatingAdd(elements, unseen), 100 * missed_share,
      100 * runlog::kMissChance);
}

Check CheckElements(const Probes& probes, const Policy& policy) {
  std::vector<ProbeRow> wrong;
  int64_t elements = 0;
  int64_t unseen = 0;
  double missed_share = 0;
  int64_t others = 0;
  for (const Probe* probe : probes) {
    const auto& oracle = probe->log.oracle;
    missed_share = std::max(missed_share, runlog::WorstMissedShare(probe->log));
    for (size_t i = 0; i < oracle.step.size(); ++i) {
      elements = SaturatingAdd(elements, oracle.elements[i]);
      unseen = SaturatingAdd(unseen, oracle.UnseenElements(i));
      others = SaturatingAdd(others, oracle.other[i]);
      if (oracle.other[i] > 0) wrong.push_back({probe, i});
    }
  }
  Check check{
      .name = "elements",
      .outcome = wrong.empty() ? Outcome::kPass : Outcome::kFail,
      .quantity = "elements that no order of summation explains:",
      .value = static_cast<double>(others),
      .relation = "at most ",
      .limit = 0,
      .evidence = fmt::format("{} elements{}{}", elements,
                              OfAllElements(elements, unseen, missed_share),
                              OfFewerCases(policy))};
  if (wrong.empty()) return check;
  const auto ratio = [](const ProbeRow& w) {
    return w.oracle().worst_ratio[w.row];
  };
  std::stable_sort(wrong.begin(), wrong.end(),
                   [&](const ProbeRow& a, const ProbeRow& b) {
                     return ratio(a) > ratio(b);
                   });
  for (const ProbeRow& w : wrong) check.findings.push_back(PlaceOf(w));
  check.evidence =
      fmt::format("in {} tensors; worst: {}", wrong.size(), check.findings[0]);
  check.next = WhereToLook(wrong);
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

/// Rounding hardly ever decides a choice after one sum of two FP32 numbers. So
/// flips of the routing get the limit for flips that no model foresees.
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

/// A probe that ends before the two runs part can't show why they part, nor
/// what else their difference hides.
std::optional<Check> EndsTooEarly(const Evidence& evidence,
                                  const Policy& policy) {
  if (policy.question != compare::Question::kRegression) return std::nullopt;
  for (const Probe& probe : evidence.candidate_probes) {
    const auto& steps = probe.log.plain_steps.step;
    const int64_t last = steps.empty() ? 0 : steps.back();
    for (const compare::SeedPair& pair : evidence.pairing->pairs) {
      if (pair.seed != probe.log.provenance.seed) continue;
      if (!probe.log.provenance.Knows(runlog::Fact::kGraph)) {
        if (auto check = MissesParting(probe, pair)) return check;
        continue;
      }
      const int64_t due =
          PlainStepsDue(pair.baseline->log, pair.candidate->log, policy);
      if (due <= last) continue;
      return Check{
          .name = "parting",
          .outcome = Outcome::kInconclusive,
          .quantity = fmt::format(
              "the runs of seed {} are not bit-equal, so {} steps of "
              "case plain are due, but {} looked at {}",
              pair.seed, due, Label(probe), last),
          .next = fmt::format("isoloss lab probe --plain-steps {}", due)};
    }
  }
  return std::nullopt;
}

std::string RecipeOf(const compare::Pairing& pairing) {
  return pairing.candidate.empty()
             ? ""
             : pairing.candidate.front()->log.provenance.recipe;
}

/// Checks the computation in the steps that were probed.
void CheckComputation(const Evidence& evidence, const Probes& all,
                      const Policy& policy, LevelFindings& found) {
  const auto scope = ForeignScope(all);
  if (scope) found.checks.push_back(*scope);
  found.checks.push_back(CheckElements(all, policy));
  for (const auto check :
       {CheckFlips, CheckBursts, CheckNoise, CheckRowNoise}) {
    found.checks.push_back(check(all, policy));
  }
  // Accumulators of GPUs cut off their last bits, and that is no fault.
  if (!scope) {
    found.checks.push_back(CheckFlipSides(all, policy));
    found.checks.push_back(CheckSignedError(all, policy));
  }
  if (auto check = CheckFigures(evidence)) {
    found.checks.push_back(std::move(*check));
  }
  if (std::any_of(all.begin(), all.end(), [](const Probe* probe) {
        return !probe->log.routing.step.empty();
      })) {
    found.checks.push_back(CheckRouting(all, policy));
  }
}

LevelFindings JudgeProbes(const Evidence& evidence, const Policy& policy) {
  LevelFindings found;
  if (!evidence.oracle_gap.empty()) {
    found.checks.push_back(
        {.name = "recipe",
         .outcome = Outcome::kInconclusive,
         .quantity =
             fmt::format("the oracle does not understand recipe {}: {}",
                         RecipeOf(*evidence.pairing), evidence.oracle_gap),
         .next = "docs/numerics.md says what it knows; a recipe in [recipes] "
                 "of the experiment is its own account of itself"});
    return found;
  }
  if (evidence.candidate_probes.empty() && evidence.baseline_probes.empty()) {
    return found;
  }
  found.checks.push_back(CheckProbes(evidence));
  if (found.checks.back().outcome == Outcome::kInvalid) {
    return found;
  }
  Probes all;
  for (const auto& probes :
       {evidence.candidate_probes, evidence.baseline_probes}) {
    for (const Probe& probe : probes) all.push_back(&probe);
  }
  if (evidence.candidate_probes.empty()) {
    found.checks.push_back(
        {.name = "candidate",
         .outcome = Outcome::kInconclusive,
         .quantity = "only the baseline was probed",
         .next = evidence.pairing->Knows(runlog::Fact::kExperiment)
                     ? "probe the candidate, too: isoloss lab probe"
                     : kRecordOperations});
  }
  RequireCases(evidence, policy, found);
  if (auto check = EndsTooEarly(evidence, policy)) {
    found.checks.push_back(std::move(*check));
  }
  CheckComputation(evidence, all, policy, found);
  return found;
}

}  // namespace

extern constinit const Level kLevel_l2_oracle = {
    .id = LevelId::l2_oracle,
    .name = "L2",
    .title = "oracle",
    .question =
        "does an independent computation in double precision explain every "
        "element of every tensor?",
    .needs = Needs::kProbes,
    .decides = Decides::kBoth,
    .run = &JudgeProbes,
    .remedy =
        "make a probe of the candidate with `isoloss lab probe` and give it "
        "with "
        "--probe",
    .foreign_remedy =
        "record operations of some steps with the recorder for PyTorch, make "
        "a probe of them with `isoloss check-tensors --out`, and give it with "
        "--probe"};

}  // namespace isoloss::gate
