#include "isoloss/report/page/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "isoloss/base/build_info.h"
#include "isoloss/gate/check_titles.h"
#include "isoloss/report/log_document.h"
#include "isoloss/report/page/arms.h"
#include "isoloss/report/page/evidence.h"
#include "isoloss/report/page/tensors.h"
#include "isoloss/report/page/values.h"

namespace isoloss::report {
namespace {

using document::Json;

/// A page holds at most this number of evaluations, of all runs together.
constexpr size_t kMostHeldOut = 20'000;

/// Returns the first run, in ascending seeds, for which `has` is true; else
/// null.
template <typename Has>
const runlog::RunLog* FirstLog(const PageArm& arm, const Has& has) {
  const auto found = std::ranges::find_if(
      arm.runs, [&](const PageRun& run) { return has(*run.log); });
  return found == arm.runs.end() ? nullptr : found->log;
}

/// Shortens long texts; `isoloss show` prints them in full.
Json ProvenanceOf(const runlog::Provenance& provenance, PageBudget& budget) {
  Json json = document::ToJson(ProvenanceDocument(provenance));
  for (auto& [key, value] : json.items()) {
    if (!value.is_string()) continue;
    value = budget.Text(value.get_ref<const std::string&>(), 20'000);
  }
  budget.Take(200 + 40 * json.size());
  return json;
}

Json ArmJson(const PageArm& arm, int64_t bin, size_t most_held_out,
             PageBudget& budget) {
  const runlog::Provenance& p = arm.runs.front().log->provenance;
  Json json{{"name", budget.Text(arm.name)},
            {"recipe", budget.Text(p.recipe)},
            {"role", arm.role},
            {"recipe_text", budget.Text(p.resolved_recipe)},
            {"provenance", ProvenanceOf(p, budget)},
            {"runs", Json::array()}};
  for (const PageRun& run : arm.runs) {
    json["runs"].push_back(RunJson(run, bin, most_held_out, budget));
  }
  return json;
}

/// Adds what the arm's runs hold besides curves, after the curves have taken
/// their room. `arms` share the rest.
void AddDetails(const PageArm& arm, size_t arms, Json& json,
                PageBudget& budget) {
  const size_t share = budget.left() / arms;
  const auto put = [&](const char* key, auto make, size_t bytes, auto has) {
    const runlog::RunLog* log = FirstLog(arm, has);
    json[key] =
        log == nullptr ? Json(nullptr) : make(*log, arm.name, bytes, budget);
  };
  put("moe", MoeJson, share / 4,
      [](const auto& log) { return !log.moe.tokens_per_expert.empty(); });
  put("exchange", ExchangeJson, share / 8,
      [](const auto& log) { return !log.exchange.bytes_by_pair.empty(); });
  put("tensors", TensorsJson, share / 2,
      [](const auto& log) { return !log.tensors.step.empty(); });
}

/// Returns a number of a verdict; null if the verdict has no such number.
Json NumberAt(const std::vector<Json>& verdicts, const std::string& candidate,
              const char* part, const char* key) {
  // A null arm or a control is tested as its candidate is.
  const Json* found = nullptr;
  for (const Json& verdict : verdicts) {
    if (!verdict.contains(part) || !verdict[part].is_object() ||
        !verdict[part].contains(key) || !verdict[part][key].is_number()) {
      continue;
    }
    const bool own = verdict.contains("candidate") &&
                     verdict["candidate"].is_object() &&
                     verdict["candidate"].value("arm", Json()) == candidate;
    if (found == nullptr || own) found = &verdict[part][key];
  }
  return found == nullptr ? Json(nullptr) : *found;
}

/// Returns the margin of the loss; null if the verdict's margin is in tokens.
Json MarginOf(const std::vector<Json>& verdicts, const std::string& candidate) {
  const Json tokens =
      NumberAt(verdicts, candidate, "policy", "margin_tokens_percent");
  if (tokens.is_number() && tokens > 0) return nullptr;
  return NumberAt(verdicts, candidate, "policy", "margin_percent");
}

/// Returns the name of each check for people.
Json CheckTitlesJson() {
  Json titles = Json::object();
  for (const gate::CheckTitle& check : gate::CheckTitles()) {
    titles[std::string(check.id)] = check.title;
  }
  return titles;
}

Json PairJson(const PagePair& pair, const std::vector<Json>& verdicts) {
  Json json{{"baseline", pair.baseline},
            {"candidate", pair.candidate},
            {"role", pair.role},
            {"seeds", Json::array()},
            {"margin_percent", MarginOf(verdicts, pair.candidate)},
            {"window", nullptr}};
  for (const compare::SeedPair& of : pair.pairing.pairs) {
    json["seeds"].push_back(of.seed);
  }
  const Json first =
      NumberAt(verdicts, pair.candidate, "final_window", "first_step");
  const Json last =
      NumberAt(verdicts, pair.candidate, "final_window", "last_step");
  if (!first.is_null() && !last.is_null()) json["window"] = {first, last};
  return json;
}

std::string TitleOf(const PageContent& content,
                    const std::vector<PageArm>& arms) {
  if (!content.title.empty()) return content.title;
  if (arms.empty()) return "isoloss";
  const auto& name = arms.front().runs.front().log->provenance.experiment_name;
  if (!name.empty()) return name;
  // Logs of foreign programs belong to no experiment.
  std::string names;
  for (const PageArm& arm : arms) {
    names += (names.empty() ? "" : " and ") + arm.name;
  }
  return names;
}

/// Builds all parts of a page, in the order in which they get their room.
class PageBuilder {
 public:
  explicit PageBuilder(const PageContent& content) : content_(content) {
    if (content.verdicts != nullptr) verdicts_ = *content.verdicts;
  }

  Json Build() && {
    for (const std::string& note : content_.notes) budget_.Note(note);
    page_ = ArmsOfPage(content_.runs, content_.approved, verdicts_,
                       content_.baseline, budget_);
    NameSides(page_, verdicts_);
    BoundVerdicts(verdicts_, budget_);
    AddHead();
    AddArms();
    AddEvidence();
    for (size_t i = 0; i < page_.arms.size(); ++i) {
      AddDetails(page_.arms[i], page_.arms.size() - i, data_["arms"][i],
                 budget_);
    }
    data_["runs_note"] = budget_.Notes();
    return std::move(data_);
  }

 private:
  static Json Copy(const Json* json) {
    return json == nullptr ? Json(nullptr) : *json;
  }

  void AddHead() {
    const BuildInfo build = GetBuildInfo();
    data_ = {
        {"schema_version", 1},
        {"title", budget_.Text(TitleOf(content_, page_.arms), 1000)},
        {"program",
         {{"version", "isoloss " + build.version}, {"commit", build.commit}}},
        {"verdicts", verdicts_},
        {"check_titles", CheckTitlesJson()},
        {"experiment_text", ""},
        {"runs_note", ""},
        {"arms", Json::array()},
        {"pairs", Json::array()}};
    budget_.Take(data_["check_titles"]);
    if (page_.arms.empty()) return;
    data_["experiment_text"] = budget_.Text(
        page_.arms.front().runs.front().log->provenance.experiment_text);
  }

  void AddArms() {
    size_t runs = 0;
    for (const PageArm& arm : page_.arms) runs += arm.runs.size();
    const size_t held_out = kMostHeldOut / std::max<size_t>(runs, 1);
    const int64_t bin = CurveBin(page_.arms);
    if (bin > 1) {
      budget_.Note(fmt::format(
          "A point of a curve is the mean of {} steps and stands at the first "
          "of them.",
          bin));
    }
    for (const PageArm& arm : page_.arms) {
      data_["arms"].push_back(ArmJson(arm, bin, held_out, budget_));
    }
    for (const PagePair& pair : page_.pairs) {
      data_["pairs"].push_back(PairJson(pair, verdicts_));
    }
    budget_.Take(data_["pairs"]);
  }

  void AddEvidence() {
    data_["null_envelope"] = EnvelopeJson(content_.ensembles, budget_);
    data_["routing_flips"] = RoutingFlipsJson(page_.pairs, budget_);
    data_["growth"] = GrowthJson(Copy(content_.growth), budget_);
    data_["oracle"] = OracleJson(content_.probes, budget_);
  }

  const PageContent& content_;
  std::vector<Json> verdicts_;
  PageBudget budget_{kMostPageBytes - kMostFrameBytes};
  PageArms page_;
  Json data_;
};

}  // namespace

Json PageData(const PageContent& content) {
  return PageBuilder(content).Build();
}

}  // namespace isoloss::report
