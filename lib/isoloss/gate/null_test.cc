#include "isoloss/gate/null_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace isoloss::gate {
namespace {

std::string Describe(const NullStatistic& statistic, double z) {
  return fmt::format("{} at step {} ({:+.3g} null standard deviations)",
                     statistic.name, statistic.step, z);
}

/// Returns the largest excess of the earliest step that has one, because a
/// fault spreads in later steps.
size_t FirstExcess(const std::vector<NullStatistic>& statistics,
                   const stats::MaxTResult& result) {
  size_t first = result.exceeding[0];
  for (const size_t i : result.exceeding) {
    const bool earlier = statistics[i].step < statistics[first].step;
    const bool same = statistics[i].step == statistics[first].step;
    if (earlier ||
        (same && std::fabs(result.z[i]) > std::fabs(result.z[first]))) {
      first = i;
    }
  }
  return first;
}

/// At 40 members the factor of the tolerance limit has flattened. If that was
/// not enough, the advice is twice as many.
size_t SuggestedMembers(size_t members) {
  constexpr size_t kUsual = 40;
  return members < kUsual ? kUsual : 2 * members;
}

void AppendNormality(std::string_view name, const stats::MaxT& test,
                     LevelFindings& found) {
  if (!test.normality().has_value()) return;
  found.measures.push_back(
      {fmt::format("{}_normality", name), test.normality()->p_value, "p",
       fmt::format("of the logarithm of the largest deviations of {} good "
                   "runs (Anderson-Darling); a small p means that the "
                   "threshold's coverage is not as stated",
                   test.null_maxima().size())});
}

stats::MaxT NullTest(const std::vector<NullStatistic>& statistics,
                     const std::vector<double>& members, size_t observed,
                     const Policy& policy) {
  std::vector<double> floors;
  for (const NullStatistic& statistic : statistics) {
    floors.push_back(statistic.floor);
  }
  // Each run adds a chance of a false alarm.
  const double coverage =
      1 - (1 - policy.null_coverage) / static_cast<double>(observed);
  return stats::MaxT(
      members, floors,
      {.coverage = coverage, .confidence = policy.null_confidence});
}

/// Holds the run that lies furthest out, with its result.
struct FurthestRun {
  const Observed* run;
  stats::MaxTResult result;
};

FurthestRun FurthestOf(const std::vector<Observed>& observed,
                       const stats::MaxT& test) {
  FurthestRun furthest{&observed[0], test.Test(observed[0].values)};
  for (const Observed& other : std::span(observed).subspan(1)) {
    stats::MaxTResult result = test.Test(other.values);
    if (!(result.largest > furthest.result.largest)) continue;
    furthest = {&other, std::move(result)};
  }
  return furthest;
}

/// Makes the check of the furthest run, whose excesses are already those
/// beyond `limit`.
Check CheckOfFurthest(std::string_view name,
                      const std::vector<NullStatistic>& statistics,
                      const FurthestRun& furthest, double limit,
                      size_t good_runs) {
  const auto& [run, worst] = furthest;
  Check check{
      .name = std::string(name),
      .outcome = worst.exceeding.empty() ? Outcome::kPass : Outcome::kFail,
      .quantity = "largest of all standardised deviations:",
      .value = worst.largest,
      .relation = worst.exceeding.empty() ? "at most " : "above ",
      .limit = limit,
      .unit = "sd",
      .evidence = fmt::format(
          "{}, {}; {} statistics, {} good runs, rank p {:.3g}", run->label,
          Describe(statistics[worst.worst], worst.z[worst.worst]),
          statistics.size(), good_runs, worst.p_value)};
  for (const size_t i : worst.exceeding) {
    check.findings.push_back(Describe(statistics[i], worst.z[i]));
  }
  if (worst.exceeding.empty()) return check;
  const size_t first = FirstExcess(statistics, worst);
  check.next = fmt::format("the first excess of {} is {}", run->label,
                           Describe(statistics[first], worst.z[first]));
  return check;
}

/// An excess counts even more if the limit is too wide, but the absence of one
/// then says nothing.
void WithholdBelowWideLimit(const Policy& policy, size_t good_runs,
                            Check& check) {
  if (check.outcome != Outcome::kPass ||
      !(*check.limit > policy.null_limit_ceiling)) {
    return;
  }
  check.outcome = Outcome::kInconclusive;
  check.quantity = fmt::format(
      "the limit is wider than {:g} sd, so that bugs lie below "
      "it; largest of all standardised deviations:",
      policy.null_limit_ceiling);
  check.next = fmt::format(
      "more members make it narrower: isoloss lab ensemble build EXPERIMENT "
      "--arm ARM --out FILE --runs {}",
      SuggestedMembers(good_runs));
}

}  // namespace

stats::MaxTResult JudgeAgainstNull(std::string_view name,
                                   const std::vector<NullStatistic>& statistics,
                                   const std::vector<double>& members,
                                   const std::vector<Observed>& observed,
                                   double headroom, const Policy& policy,
                                   LevelFindings& found) {
  const stats::MaxT test =
      NullTest(statistics, members, observed.size(), policy);
  FurthestRun furthest = FurthestOf(observed, test);
  stats::MaxTResult& worst = furthest.result;
  // Deviations of good runs have a heavier tail than a normal distribution.
  // One early flip can move a norm by more than it moved in any member.
  const double limit = std::max(
      test.threshold(), headroom * std::ranges::max(test.null_maxima()));
  std::erase_if(worst.exceeding,
                [&](size_t i) { return std::abs(worst.z[i]) <= limit; });
  const size_t good_runs = test.null_maxima().size();
  Check check = CheckOfFurthest(name, statistics, furthest, limit, good_runs);
  WithholdBelowWideLimit(policy, good_runs, check);
  found.checks.push_back(std::move(check));
  AppendNormality(name, test, found);
  return std::move(worst);
}

Check EvidenceCheck(std::string_view name, std::vector<std::string> findings,
                    std::string evidence, std::string_view promise) {
  Check check{.name = std::string(name),
              .outcome = Outcome::kPass,
              .quantity = std::string(promise),
              .evidence = std::move(evidence)};
  if (findings.empty()) return check;
  check.outcome = Outcome::kInvalid;
  check.quantity = findings[0];
  check.evidence = fmt::format("one of {} findings", findings.size());
  check.findings = std::move(findings);
  check.next =
      "make it again for these runs: isoloss lab ensemble build EXPERIMENT "
      "--arm ARM --out FILE, or of another program's runs --from LOG... --out "
      "FILE";
  return check;
}

Check TooFewMembers(const NullEnsemble& ensemble, size_t usable,
                    const Policy& policy) {
  return {.name = "members",
          .outcome = Outcome::kInconclusive,
          .quantity = "good runs in the ensemble, besides its reference:",
          .value = static_cast<double>(usable),
          .relation = "below ",
          .limit = static_cast<double>(policy.min_members),
          .evidence = fmt::format("{} of {}", Label(ensemble),
                                  ensemble.ensemble.members.size()),
          .next = ensemble.ensemble.provenance.Knows(runlog::Fact::kExperiment)
                      ? fmt::format("add members: isoloss lab ensemble build "
                                    "EXPERIMENT --arm ARM --out FILE --runs {}",
                                    policy.min_members)
                      : fmt::format(
                            "build it from {} good runs or more: isoloss lab "
                            "ensemble build --from LOG... --out FILE",
                            policy.min_members + 1)};
}

std::vector<const runlog::EnsembleMember*> UsableMembers(
    const NullEnsemble& ensemble, const compare::Pairing& pairing) {
  std::vector<const runlog::EnsembleMember*> usable;
  for (const runlog::EnsembleMember& member : ensemble.ensemble.members) {
    const bool judged =
        ensemble.ensemble.kind == runlog::EnsembleKind::kSeeds &&
        std::any_of(pairing.pairs.begin(), pairing.pairs.end(),
                    [&](const compare::SeedPair& pair) {
                      return pair.seed == member.seed;
                    });
    if (!judged) usable.push_back(&member);
  }
  return usable;
}

}  // namespace isoloss::gate
