#include "isoloss/report/page/arms.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "isoloss/compare/treatment.h"

namespace isoloss::report {
namespace {

using document::Json;

using compare::Run;

/// Returns the value of `json` at these keys, one below the next; null if there
/// is no such place.
template <typename... Keys>
const Json& At(const Json& json, const char* key, Keys... keys) {
  static const Json kNull;
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end()) return kNull;
  if constexpr (sizeof...(keys) == 0) {
    return *found;
  } else {
    return At(*found, keys...);
  }
}

/// Returns the text at these keys; "" if there is none.
template <typename... Keys>
std::string TextAt(const Json& json, Keys... keys) {
  const Json& text = At(json, keys...);
  return text.is_string() ? text.get<std::string>() : "";
}

/// Returns each arm's purpose as the verdicts name it; a candidate comes before
/// any further purpose.
std::map<std::string, std::string> RolesIn(const std::vector<Json>& verdicts) {
  std::map<std::string, std::string> roles;
  for (const Json& verdict : verdicts) {
    roles.emplace(TextAt(verdict, "candidate", "arm"), "candidate");
  }
  for (const Json& verdict : verdicts) {
    for (const Json& null : At(verdict, "controls", "null_arms")) {
      roles.emplace(TextAt(null, "arm"), "null");
    }
    roles.emplace(TextAt(verdict, "controls", "control", "arm"), "control");
  }
  return roles;
}

/// Returns the names in the order of their first run.
std::vector<std::string> ArmNames(std::span<const Run> runs) {
  std::vector<std::string> names;
  for (const Run& run : runs) {
    const std::string& arm = run.log.provenance.arm;
    if (std::ranges::count(names, arm) == 0) names.push_back(arm);
  }
  return names;
}

bool IsRegression(const std::vector<Json>& verdicts) {
  return std::ranges::any_of(verdicts, [](const Json& verdict) {
    return TextAt(verdict, "policy", "question") == "regression";
  });
}

std::string BaselineOf(std::span<const Run> runs,
                       const std::vector<std::string>& names,
                       const std::vector<Json>& verdicts,
                       std::string_view given) {
  std::vector<std::string> wanted;
  for (const Json& verdict : verdicts) {
    wanted.push_back(TextAt(verdict, "baseline", "arm"));
  }
  wanted.emplace_back(given);
  wanted.push_back(runs.front().log.provenance.baseline_arm);
  for (const std::string& name : wanted) {
    if (std::ranges::count(names, name) != 0) return name;
  }
  return names.front();
}

/// No arm has a longer name.
constexpr size_t kMostNameBytes = 200;

PageArm ArmOf(const std::string& name, std::string role,
              std::vector<const Run*> runs) {
  std::ranges::stable_sort(
      runs, {}, [](const Run* run) { return run->log.provenance.seed; });
  PageArm arm{ClippedText(name, kMostNameBytes), std::move(role), {}};
  for (const Run* run : runs) {
    arm.runs.push_back({run->file, &run->log});
  }
  return arm;
}

// These endings tell two versions of one arm apart.
constexpr const char* kNow = " now";
constexpr const char* kApproved = " approved";

/// Returns the arms of a verdict on a regression, each beside its approved
/// runs.
PageArms BesideApproved(std::span<const Run> runs,
                        std::span<const Run> approved) {
  PageArms page;
  const std::vector<std::string> names = ArmNames(runs);
  for (const std::string& name : names) {
    const auto earlier = compare::RunsOfArm(approved, name);
    page.arms.push_back(ArmOf(earlier.empty() ? name : name + kNow, "candidate",
                              compare::RunsOfArm(runs, name)));
    if (earlier.empty()) continue;
    page.arms.push_back(ArmOf(name + kApproved, "approved", earlier));
    page.pairs.push_back({"candidate", page.arms.back().name,
                          page.arms[page.arms.size() - 2].name,
                          compare::PairBySeed(name, earlier, name,
                                              compare::RunsOfArm(runs, name))});
  }
  return page;
}

/// Returns a purpose's place in the order on the page.
size_t Rank(std::string_view role) {
  constexpr std::string_view kRoles[] = {"baseline", "candidate", "null",
                                         "control"};
  return static_cast<size_t>(std::ranges::find(kRoles, role) - kRoles);
}

PageArms BesideBaseline(std::span<const Run> runs,
                        const std::vector<Json>& verdicts,
                        std::string_view given_baseline) {
  PageArms page;
  std::vector<std::string> names = ArmNames(runs);
  const std::string baseline =
      BaselineOf(runs, names, verdicts, given_baseline);
  const auto of_baseline = compare::RunsOfArm(runs, baseline);
  const std::map<std::string, std::string> roles = RolesIn(verdicts);
  page.arms.push_back(ArmOf(baseline, "baseline", of_baseline));
  std::erase(names, baseline);
  for (const std::string& name : names) {
    const auto of_arm = compare::RunsOfArm(runs, name);
    const auto role = roles.find(name);
    const bool null = compare::IsNullOf(*of_arm.front(), *of_baseline.front());
    const std::string what = role != roles.end() ? role->second
                             : !verdicts.empty() ? "run"
                             : null              ? "null"
                                                 : "candidate";
    page.arms.push_back(ArmOf(name, what, of_arm));
    page.pairs.push_back(
        {what, page.arms.front().name, page.arms.back().name,
         compare::PairBySeed(baseline, of_baseline, name, of_arm)});
  }
  if (page.pairs.empty() && verdicts.empty()) page.arms.front().role = "run";
  std::ranges::stable_sort(page.arms, {},
                           [](const PageArm& arm) { return Rank(arm.role); });
  std::ranges::stable_sort(
      page.pairs, {}, [](const PagePair& pair) { return Rank(pair.role); });
  return page;
}

/// Returns whether the page has the run.
bool Has(const PageArms& page, const Run* run) {
  return std::ranges::any_of(page.arms, [run](const PageArm& arm) {
    return std::ranges::count(arm.runs, &run->log, &PageRun::log) != 0;
  });
}

/// Leaves out runs of the highest seeds.
void LimitRuns(PageArms& page, PageBudget& budget) {
  size_t runs = 0;
  for (const PageArm& arm : page.arms) runs += arm.runs.size();
  if (runs <= kMostPageRuns) return;
  budget.Note(
      fmt::format("Of {} runs the page has {}, those of the lowest "
                  "seeds of each arm.",
                  runs, kMostPageRuns));
  const size_t share = kMostPageRuns / page.arms.size();
  for (PageArm& arm : page.arms) {
    arm.runs.resize(std::min(arm.runs.size(), std::max<size_t>(share, 1)));
  }
  if (page.arms.size() > kMostPageRuns) page.arms.resize(kMostPageRuns);
  std::erase_if(page.pairs, [&](const PagePair& pair) {
    return std::ranges::count(page.arms, pair.candidate, &PageArm::name) == 0;
  });
  for (PagePair& pair : page.pairs) {
    std::erase_if(pair.pairing.pairs, [&](const compare::SeedPair& of) {
      return !Has(page, of.baseline) || !Has(page, of.candidate);
    });
  }
}

}  // namespace

PageArms ArmsOfPage(std::span<const Run> runs, std::span<const Run> approved,
                    const std::vector<Json>& verdicts,
                    std::string_view baseline, PageBudget& budget) {
  if (runs.empty()) return {};
  if (!baseline.empty() && std::ranges::count(ArmNames(runs), baseline) == 0) {
    budget.Note(fmt::format(
        "The arm {}, which was named as the baseline, has no run here.",
        ClippedText(baseline, kMostNameBytes)));
  }
  PageArms page = IsRegression(verdicts) || !approved.empty()
                      ? BesideApproved(runs, approved)
                      : BesideBaseline(runs, verdicts, baseline);
  LimitRuns(page, budget);
  return page;
}

void NameSides(const PageArms& page, std::vector<Json>& verdicts) {
  if (!std::ranges::count(page.arms, "approved", &PageArm::role)) return;
  for (Json& verdict : verdicts) {
    const std::string arm = TextAt(verdict, "candidate", "arm");
    if (arm.empty() || arm != TextAt(verdict, "baseline", "arm")) continue;
    verdict["candidate"]["arm"] = arm + kNow;
    verdict["baseline"]["arm"] = arm + kApproved;
  }
}

}  // namespace isoloss::report
