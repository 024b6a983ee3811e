#include "isoloss/report/page/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>

#include "isoloss/compare/final_window.h"
#include "isoloss/compare/routing_difference.h"
#include "isoloss/report/log_document.h"

namespace isoloss::report {
namespace {

using document::Json;

constexpr size_t kMostVerdictBytes = 700'000;
constexpr size_t kMostGrowthEntries = 50;
constexpr size_t kMostFlipPoints = 200;
constexpr size_t kMostFlipBytes = 200'000;
constexpr size_t kMostProbes = 100;
constexpr size_t kMostEnvelopeSteps = 5'000;

/// Cuts lists to `entries` and texts to `bytes`, at every depth.
void Shorten(Json& json, size_t entries, size_t bytes) {
  if (json.is_string()) {
    json = ClippedText(json.get_ref<const std::string&>(), bytes);
  }
  if (json.is_array() && json.size() > entries) {
    json.erase(json.begin() + static_cast<std::ptrdiff_t>(entries), json.end());
  }
  if (!json.is_structured()) return;
  for (Json& part : json) Shorten(part, entries, bytes);
}

size_t SizeOf(const std::vector<Json>& verdicts) {
  return PageJson(Json(verdicts)).size();
}

/// Returns the difference of each member in percent of the reference's loss, at
/// the steps that both have.
std::vector<std::vector<double>> MemberCurves(
    const runlog::Ensemble& ensemble) {
  std::vector<std::vector<double>> curves;
  for (const runlog::EnsembleMember& member : ensemble.members) {
    const std::vector<double>& loss = member.steps.loss_nats;
    const std::vector<double>& reference = member.reference_steps.loss_nats;
    std::vector<double> curve;
    for (size_t i = 0; i < std::min(loss.size(), reference.size()); ++i) {
      curve.push_back(compare::PercentDifference(loss[i], reference[i]));
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

/// Both functions return NaN if a or b is NaN.
double Lower(double a, double b) { return a < b || std::isnan(a) ? a : b; }
double Upper(double a, double b) { return a > b || std::isnan(a) ? a : b; }

/// Returns the percent of choices that flipped, as the mean over each bin, and
/// the first step of each bin.
Json FlipsJson(const compare::RoutingDifference& difference) {
  Json json{{"step", Json::array()}, {"percent", Json::array()}};
  const size_t steps = difference.step.size();
  const auto layers = static_cast<size_t>(difference.layers);
  const size_t width = (steps + kMostFlipPoints - 1) / kMostFlipPoints;
  for (size_t first = 0; first < steps; first += width) {
    const size_t end = std::min(steps, first + width);
    const double flips = std::accumulate(
        difference.flips.begin() + static_cast<std::ptrdiff_t>(first * layers),
        difference.flips.begin() + static_cast<std::ptrdiff_t>(end * layers),
        0.0);
    const double choices = static_cast<double>((end - first) * layers) *
                           static_cast<double>(difference.choices);
    json["step"].push_back(difference.step[first]);
    json["percent"].push_back(ShortNumber(100 * flips / choices));
  }
  return json;
}

}  // namespace

void BoundVerdicts(std::vector<Json>& verdicts, PageBudget& budget) {
  constexpr std::pair<size_t, size_t> kLimits[] = {
      {200, 2000}, {50, 500}, {10, 100}};
  for (const auto& [entries, bytes] : kLimits) {
    if (SizeOf(verdicts) <= kMostVerdictBytes) break;
    budget.Note("Long lists and texts of verdicts are cut.");
    for (Json& verdict : verdicts) Shorten(verdict, entries, bytes);
  }
  while (SizeOf(verdicts) > kMostVerdictBytes) {
    budget.Note(
        "The page leaves out the last verdicts, because all would "
        "have too many bytes.");
    verdicts.pop_back();
  }
  budget.Take(SizeOf(verdicts));
}

Json EnvelopeJson(std::span<const gate::NullEnsemble> ensembles,
                  PageBudget& budget) {
  if (ensembles.empty()) return nullptr;
  const gate::NullEnsemble& given = ensembles.front();
  if (ensembles.size() > 1) {
    budget.Note(fmt::format(
        "Of {} null ensembles the page draws the first, that of arm {}.",
        ensembles.size(), given.ensemble.provenance.arm));
  }
  const auto curves = MemberCurves(given.ensemble);
  if (curves.empty()) return nullptr;
  size_t steps = kMostEnvelopeSteps;
  for (const auto& curve : curves) steps = std::min(steps, curve.size());
  Json step = Json::array();
  std::vector<double> lower;
  std::vector<double> upper;
  for (size_t i = 0; i < steps; ++i) {
    step.push_back(given.ensemble.members.front().steps.step[i]);
    lower.push_back(std::numeric_limits<double>::infinity());
    upper.push_back(-std::numeric_limits<double>::infinity());
    for (const auto& curve : curves) {
      lower.back() = Lower(lower.back(), curve[i]);
      upper.back() = Upper(upper.back(), curve[i]);
    }
  }
  return budget.Fit({{"source", budget.Text(given.file)},
                     {"arm", budget.Text(given.ensemble.provenance.arm)},
                     {"kind", EnsembleKindName(given.ensemble.kind)},
                     {"members", curves.size()},
                     {"step", std::move(step)},
                     {"lower", Float32Base64(lower)},
                     {"upper", Float32Base64(upper)}},
                    "the null ensemble");
}

Json RoutingFlipsJson(const std::vector<PagePair>& pairs, PageBudget& budget) {
  Json list = Json::array();
  size_t left = std::min(kMostFlipBytes, budget.left());
  for (const PagePair& pair : pairs) {
    for (const compare::SeedPair& of : pair.pairing.pairs) {
      const auto difference =
          compare::CompareRouting(of.baseline->log.moe, of.candidate->log.moe);
      if (!difference || difference->flips.empty() ||
          difference->choices == 0) {
        continue;
      }
      Json entry = FlipsJson(*difference);
      entry["candidate"] = pair.candidate;
      entry["seed"] = of.seed;
      const size_t size = PageJson(entry).size();
      if (size > left) {
        budget.Note("The page has the routing of the first pairs only.");
        return list;
      }
      left -= size;
      budget.Take(size);
      list.push_back(std::move(entry));
    }
  }
  return list;
}

Json GrowthJson(Json growth, PageBudget& budget) {
  if (growth.is_null()) return nullptr;
  for (Json& part : growth) {
    if (!part.is_array() || part.size() <= kMostGrowthEntries) continue;
    budget.Note(
        fmt::format("Lists of the two dumps have their first {} "
                    "entries.",
                    kMostGrowthEntries));
    part.erase(part.begin() + kMostGrowthEntries, part.end());
  }
  return budget.Fit(std::move(growth), "the growth of errors");
}

Json OracleJson(std::span<const gate::Probe> probes, PageBudget& budget) {
  Json list = Json::array();
  for (const gate::Probe& probe : probes) {
    if (list.size() == kMostProbes) {
      budget.Note("The page has the first probe logs only.");
      break;
    }
    const Json found = document::ToJson(DocumentOf(probe.log, probe.file));
    Json entry{
        {"arm", found["arm"]},           {"seed", found["seed"]},
        {"file", found["file"]},         {"passed", found["outcome"] == "PASS"},
        {"complete", found["complete"]}, {"cases", Json::array()},
        {"worst", Json::array()}};
    for (const Json& of : found["cases"]) {
      Json shown = of;
      shown["name"] = of["case"];
      shown.erase("case");
      if (!of["worst"].is_null()) {
        Json worst = of["worst"];
        worst["case"] = of["case"];
        entry["worst"].push_back(std::move(worst));
      }
      shown.erase("worst");
      entry["cases"].push_back(std::move(shown));
    }
    Shorten(entry, 100, 300);
    entry = budget.Fit(std::move(entry), "what the oracle found");
    if (!entry.is_null()) list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace isoloss::report
