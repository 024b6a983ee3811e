#include "isoloss/estimators/site_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "isoloss/base/error.h"
#include "isoloss/stats/false_discovery.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"

namespace isoloss::estimators {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr size_t kArmsBeforeProducts = 2;

/// Returns an interval that says nothing if values are infinite or missing.
stats::MeanInterval IntervalOf(const std::vector<double>& values) {
  const bool finite =
      std::ranges::all_of(values, [](double x) { return std::isfinite(x); });
  if (!finite) return {kInfinite, -kInfinite, kInfinite};
  return stats::IntervalOfMean(stats::Summarize(values), kSiteAlpha);
}

std::vector<double> Differences(const std::vector<double>& a,
                                const std::vector<double>& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  return differences;
}

/// Describes the mean of a sum of harms.
struct HarmSum {
  stats::MeanInterval interval = {};
  double p = 1;  ///< that it is not above 0, one-sided
};

/// Widens `sum` to the interval of one error, and its p-value likewise.
void Widen(double error, double freedom, HarmSum& sum) {
  if (freedom < 1) return;
  const double mean = sum.interval.mean;
  const double reach = error * stats::StudentTQuantile(1 - kSiteAlpha, freedom);
  sum.interval.lower = std::min(sum.interval.lower, mean - reach);
  sum.interval.upper = std::max(sum.interval.upper, mean + reach);
  const double p =
      error > 0 ? stats::StudentTUpperTail(mean / error, freedom) : 1;
  sum.p = std::max(sum.p, p);
}

/// Takes the wider of two intervals. One is by the model's error, which all
/// arms determine. The other is by the error of these seeds, which differs if
/// a harm differs from seed to seed.
HarmSum SumOf(const AdditiveModel& model, std::span<const size_t> products) {
  const stats::Summary summary = stats::Summarize(model.HarmBySeed(products));
  if (!std::isfinite(summary.mean)) {
    return {{kInfinite, -kInfinite, kInfinite}, 0};
  }
  HarmSum sum{{summary.mean, summary.mean, summary.mean}, 0};
  const auto count = static_cast<double>(summary.count);
  Widen(model.ErrorOf(products), model.freedom(), sum);
  Widen(summary.sd / std::sqrt(count), count - 1, sum);
  return sum;
}

std::vector<ProductFinding> Rank(const SiteEvidence& evidence,
                                 const AdditiveModel& model) {
  const size_t count = evidence.products.size();
  std::vector<ProductFinding> found;
  std::vector<double> p_values;
  for (size_t product = 0; product < count; ++product) {
    const ArmLosses& only = evidence.arms[kArmsBeforeProducts + product];
    const ArmLosses& all_but =
        evidence.arms[kArmsBeforeProducts + count + product];
    found.push_back(
        {.product = product,
         .unstable = model.IsUnstable(product),
         .only =
             IntervalOf(Differences(only.losses, evidence.arms.front().losses)),
         .all_but =
             IntervalOf(Differences(evidence.arms[1].losses, all_but.losses))});
    const HarmSum harm = SumOf(model, std::vector{product});
    found.back().harm = harm.interval;
    found.back().p = harm.p;
    p_values.push_back(found.back().p);
  }
  const std::vector<double> adjusted = stats::BenjaminiHochberg(p_values);
  for (size_t i = 0; i < count; ++i) found[i].adjusted = adjusted[i];
  std::ranges::stable_sort(found, [](const auto& a, const auto& b) {
    return std::pair(a.unstable, a.harm.mean) >
           std::pair(b.unstable, b.harm.mean);
  });
  return found;
}

/// Orders the products that make a step faster. Products whose harm is told
/// apart from 0 come last, by ascending harm for the time saved. All earlier
/// products come by descending time saved. An order by harm would pick
/// products that look harmless by chance, and would predict too small a gap.
std::vector<size_t> GreedyOrder(const SiteEvidence& evidence,
                                const std::vector<ProductFinding>& ranked) {
  std::vector<std::pair<double, size_t>> order;
  for (const ProductFinding& finding : ranked) {
    const double saved = evidence.products[finding.product].saved_seconds;
    if (saved <= 0 || finding.unstable) continue;
    order.emplace_back(
        finding.adjusted < kHarmful ? finding.harm.mean / saved : -saved,
        finding.product);
  }
  std::ranges::stable_sort(order);
  std::vector<size_t> products;
  for (const auto& entry : order) products.push_back(entry.second);
  return products;
}

SetFinding Predict(const SiteEvidence& evidence, const AdditiveModel& model,
                   NamedSet set) {
  SetFinding finding{.set = std::move(set)};
  finding.speed_up = evidence.speed_up(finding.set.products);
  finding.predicted = SumOf(model, finding.set.products).interval;
  return finding;
}

std::vector<SetFinding> Frontier(const SiteEvidence& evidence,
                                 const AdditiveModel& model,
                                 const std::vector<ProductFinding>& ranked) {
  std::vector<SetFinding> frontier = {
      Predict(evidence, model, {.name = "nothing"})};
  std::vector<size_t> products;
  for (const size_t product : GreedyOrder(evidence, ranked)) {
    products.push_back(product);
    NamedSet set{.name = "+ " + evidence.products[product].Name(),
                 .products = products};
    std::ranges::sort(set.products);
    frontier.push_back(Predict(evidence, model, std::move(set)));
  }
  return frontier;
}

/// Returns the named sets without products that save no time.
std::vector<SetFinding> UsefulSets(const SiteEvidence& evidence,
                                   const AdditiveModel& model) {
  std::vector<SetFinding> useful;
  for (NamedSet set : evidence.sets) {
    const size_t erased = std::erase_if(set.products, [&](size_t product) {
      return evidence.products[product].saved_seconds <= 0;
    });
    if (erased > 0) set.name += " without what saves nothing";
    useful.push_back(Predict(evidence, model, std::move(set)));
  }
  return useful;
}

std::optional<SetFinding> ChooseRecipe(const SiteEvidence& evidence,
                                       const AdditiveModel& model,
                                       const SiteFindings& findings) {
  std::vector<SetFinding> candidates = findings.frontier;
  for (SetFinding& set : UsefulSets(evidence, model)) {
    candidates.push_back(std::move(set));
  }
  const auto refuted = [&](const SetFinding& set) {
    return std::ranges::any_of(findings.sets, [&](const SetFinding& known) {
      return known.set.products == set.set.products &&
             !(known.measured->lower <= findings.margin_nats &&
               std::isfinite(known.measured->mean));
    });
  };
  std::optional<SetFinding> recipe;
  for (const SetFinding& set : candidates) {
    const bool safe = set.predicted.upper < findings.margin_nats;
    if (set.set.products.empty() || !safe || refuted(set)) continue;
    if (!recipe || set.speed_up > recipe->speed_up) recipe = set;
  }
  return recipe;
}

/// Says which arms are not used, and which products save no time.
std::vector<std::string> NotesOn(const SiteEvidence& evidence,
                                 const AdditiveModel& model) {
  std::vector<std::string> notes;
  if (!model.left_out().empty()) {
    notes.push_back(
        fmt::format("{} of {} arms are not used, because a run of theirs, or "
                    "of a product of "
                    "theirs alone, did not end with a finite loss: {}.",
                    model.left_out().size(), evidence.arms.size(),
                    fmt::join(model.left_out(), ", ")));
  }
  std::vector<std::string> slow;
  for (const SiteProduct& product : evidence.products) {
    if (product.saved_seconds <= 0) slow.push_back(product.Name());
  }
  if (!slow.empty()) {
    notes.push_back(fmt::format(
        "By the speed model these make no step faster, so no recipe has them: "
        "{}.",
        fmt::join(slow, ", ")));
  }
  return notes;
}

void CheckShape(const SiteEvidence& evidence) {
  const size_t arms = kArmsBeforeProducts + 2 * evidence.products.size();
  if (evidence.arms.size() == arms &&
      evidence.sets.size() == evidence.set_losses.size()) {
    return;
  }
  ThrowError(
      ErrorKind::kShape,
      "sites: {} arms of {} products and {} of {} sets were given, but {} "
      "and one for each set are needed. Train what is missing.",
      evidence.arms.size(), evidence.products.size(),
      evidence.set_losses.size(), evidence.sets.size(), arms);
}

}  // namespace

void CompareAfresh(const ArmLosses& baseline, const ArmLosses& arm,
                   SetFinding& finding) {
  finding.measured = IntervalOf(Differences(arm.losses, baseline.losses));
  const stats::MeanInterval& a = *finding.measured;
  const stats::MeanInterval& b = finding.predicted;
  if (!std::isfinite(a.mean)) {
    finding.difference = a;
    return;
  }
  const double mean = a.mean - b.mean;
  finding.difference = {mean,
                        mean - std::hypot(a.mean - a.lower, b.upper - b.mean),
                        mean + std::hypot(a.upper - a.mean, b.mean - b.lower)};
}

SiteFindings JudgeSites(const SiteEvidence& evidence) {
  CheckShape(evidence);
  const AdditiveModel model(evidence.products.size(), evidence.arms);
  const ArmLosses& baseline = evidence.arms.front();
  SiteFindings findings{.seeds = model.seeds(),
                        .baseline_loss = stats::Mean(baseline.losses),
                        .ranked = Rank(evidence, model),
                        .frontier = {},
                        .sets = {},
                        .recipe = std::nullopt,
                        .notes = NotesOn(evidence, model)};
  findings.frontier = Frontier(evidence, model, findings.ranked);
  findings.margin_nats = evidence.margin_percent / 100 * findings.baseline_loss;
  const auto add = [&](const NamedSet& set, const ArmLosses& losses) {
    findings.sets.push_back(Predict(evidence, model, set));
    SetFinding& finding = findings.sets.back();
    const std::vector<double> gaps =
        Differences(losses.losses, baseline.losses);
    finding.measured = IntervalOf(gaps);
    finding.difference =
        IntervalOf(Differences(gaps, model.HarmBySeed(finding.set.products)));
  };
  const ArmLosses& all = evidence.arms[1];
  add({.name = "every product", .source = "", .products = all.products}, all);
  for (size_t i = 0; i < evidence.sets.size(); ++i) {
    add(evidence.sets[i], evidence.set_losses[i]);
  }
  findings.recipe = ChooseRecipe(evidence, model, findings);
  return findings;
}

}  // namespace isoloss::estimators
