#include "isoloss/gate/oracle_flips.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/saturating.h"
#include "isoloss/stats/poisson_limit.h"

namespace isoloss::gate {
namespace {

/// The checks CheckFlips, CheckBursts and CheckFlipSides share
/// policy.flip_alpha, so that each takes a third.
constexpr double kFlipChecks = 3;

/// Larger means are out of the range of stats/poisson_limit.h.
constexpr double kLargestMean = 1e15;

/// Each row of a rounded tensor gets one call of visit(row).
template <typename Visit>
void ForEachRounded(const Probes& probes, const Visit& visit) {
  for (const Probe* probe : probes) {
    for (size_t i = 0; i < probe->log.oracle.step.size(); ++i) {
      const ProbeRow at = {probe, i};
      if (at.IsRounded()) visit(at);
    }
  }
}

/// The sums for one tensor go over all cases, steps and probes.
struct FlipCount {
  int64_t flips = 0;
  double expected = 0;
};

/// Limits the flips of one tensor in one step by a count of clusters.
/// Roundings of one row share the values that they were computed from, so they
/// flip together.
class BurstLimit {
 public:
  BurstLimit(const Policy& policy, double tests)
      : policy_(policy), alpha_(policy.flip_alpha / kFlipChecks / tests) {}

  double Mean(const ProbeRow& at) const {
    const double expected =
        kUnforeseenFlips + policy_.burst_factor * at.ExpectedFlips();
    return std::min(kLargestMean, expected / policy_.flip_cluster);
  }
  double PValue(const ProbeRow& at) const {
    const auto flips = static_cast<double>(at.Flips());
    return stats::PoissonPValue(
        static_cast<int64_t>(std::ceil(flips / policy_.flip_cluster)),
        Mean(at));
  }
  double Limit(const ProbeRow& at) const {
    return policy_.flip_cluster *
           static_cast<double>(stats::PoissonUpperLimit(Mean(at), alpha_));
  }
  double alpha() const { return alpha_; }

 private:
  const Policy& policy_;
  double alpha_;
};

/// Says in how many rows of a tensor more flips fell to one side than to the
/// opposite side.
struct Votes {
  int64_t toward_zero = 0;
  int64_t away = 0;

  int64_t all() const { return toward_zero + away; }
  int64_t Surplus() const { return std::abs(toward_zero - away); }
};

}  // namespace

Check CheckFlips(const Probes& probes, const Policy& policy) {
  std::map<std::string, FlipCount> counts;
  FlipCount total;
  ForEachRounded(probes, [&](const ProbeRow& at) {
    for (FlipCount* count : {&counts[at.Tensor()], &total}) {
      count->flips = SaturatingAdd(count->flips, at.Flips());
      count->expected += at.ExpectedFlips();
    }
  });
  // The tensors and their total have to share alpha.
  const double alpha = policy.flip_alpha / kFlipChecks /
                       (static_cast<double>(counts.size()) + 1);
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
  FailOnFindings("look at how this tensor is summed and rounded", check);
  return check;
}

Check CheckBursts(const Probes& probes, const Policy& policy) {
  double tests = 1;  // none of no rows
  ForEachRounded(probes, [&](const ProbeRow&) { ++tests; });
  const BurstLimit limit(policy, tests);
  Check check{.name = "bursts",
              .outcome = Outcome::kPass,
              .quantity =
                  "roundings of one tensor in one step that fell the other "
                  "way:"};
  std::optional<ProbeRow> worst;
  double least = 1;
  std::vector<ProbeRow> bursts;
  ForEachRounded(probes, [&](const ProbeRow& at) {
    if (at.Flips() == 0) return;
    const double p = limit.PValue(at);
    if (!worst || p < least) {
      worst = at;
      least = p;
    }
    if (p <= limit.alpha()) bursts.push_back(at);
  });
  if (!worst) {
    check.evidence = "there are none";
    return check;
  }
  const auto describe = [&](const ProbeRow& at) {
    return fmt::format("{}: {} flips, {:.3g} expected, limit {:.4g}",
                       at.Place(), at.Flips(), at.ExpectedFlips(),
                       limit.Limit(at));
  };
  check.value = static_cast<double>(worst->Flips());
  check.relation = "at most ";
  check.limit = limit.Limit(*worst);
  check.evidence = fmt::format("of {} steps of tensors the least likely is {}",
                               tests - 1, describe(*worst));
  for (const ProbeRow& at : bursts) check.findings.push_back(describe(at));
  if (bursts.empty()) return check;
  check.outcome = Outcome::kFail;
  check.next = fmt::format(
      "the first such tensor in order of computation is {}",
      std::min_element(bursts.begin(), bursts.end(), ComputedBefore)->Place());
  return check;
}

Check CheckFlipSides(const Probes& probes, const Policy& policy) {
  std::map<std::string, Votes> votes;
  Votes total;
  for (const Probe* probe : probes) {
    if (!HasShape(probe->log)) continue;
    const std::vector<bool> is_product = AreProducts(probe->log);
    ForEachRounded({probe}, [&](const ProbeRow& at) {
      const auto& oracle = at.oracle();
      if (!is_product[static_cast<size_t>(oracle.tensor[at.row])]) return;
      const int64_t toward = oracle.flips_toward_zero[at.row];
      const int64_t away = oracle.flips[at.row] - toward;
      if (toward == away) return;
      for (Votes* count : {&votes[at.Tensor()], &total}) {
        ++(toward > away ? count->toward_zero : count->away);
      }
    });
  }
  // Hoeffding's bound: the sum of n signs exceeds sqrt(2 n x) in either
  // direction with probability 2 exp(-x) at most.
  const double x = std::log(2 * (static_cast<double>(votes.size()) + 1) *
                            kFlipChecks / policy.flip_alpha);
  const auto limit_of = [x](const Votes& count) {
    return std::sqrt(2 * static_cast<double>(count.all()) * x);
  };
  const auto describe = [&](const std::string& name, const Votes& count) {
    return fmt::format(
        "{}: in {} of {} steps the flips fall rather toward zero, in {} away "
        "from it, surplus limit {:.3g}",
        name, count.toward_zero, count.all(), count.away, limit_of(count));
  };
  Check check{
      .name = "flip_sides",
      .outcome = Outcome::kPass,
      .quantity = "surplus of tensors and steps whose flips fall to one side:",
      .value = static_cast<double>(total.Surplus()),
      .relation = "at most ",
      .limit = limit_of(total),
      .evidence = describe("all products", total)};
  const auto report = [&](const std::string& name, const Votes& count) {
    if (static_cast<double>(count.Surplus()) <= limit_of(count)) return;
    check.findings.push_back(describe(name, count));
  };
  report("all products", total);
  for (const auto& [name, count] : votes) report(name, count);
  check.evidence += WithoutShape(probes);
  FailOnFindings("look for an accumulator that cuts off where it should round",
                 check);
  return check;
}

}  // namespace isoloss::gate
