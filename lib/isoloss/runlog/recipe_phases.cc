#include "isoloss/runlog/recipe_phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>

#include "isoloss/runlog/recording.h"

namespace isoloss::runlog {

int64_t LastStepOf(double share, int64_t steps) {
  return std::llround(share * static_cast<double>(steps));
}

namespace {

/// Returns the text of a key without its quotation marks; "" if it is absent.
std::string TextOf(const std::map<std::string, std::string>& keys,
                   const std::string& key) {
  const auto found = keys.find(key);
  if (found == keys.end() || found->second.size() < 2) return "";
  return found->second.substr(1, found->second.size() - 2);
}

constexpr std::string_view kFromStep = "from step ";

}  // namespace

RecipePlan RecipePlanOf(const std::string& experiment_text,
                        const std::string& arm, int64_t steps) {
  const auto keys = KeysOf(experiment_text);
  RecipePlan plan{.name = TextOf(keys, "arms." + arm + ".recipe")};
  for (size_t i = 0;; ++i) {
    const std::string phase = fmt::format("arms.{}.then.{}.", arm, i);
    const auto from = keys.find(phase + "from");
    if (from == keys.end()) return plan;
    plan.name += std::string(kThen) + TextOf(keys, phase + "recipe");
    const double share = std::strtod(from->second.c_str(), nullptr);
    // A log may tell anything; LastStepOf takes shares alone.
    const bool is_share = share > 0 && share < 1;
    plan.first_steps.push_back(is_share ? LastStepOf(share, steps) + 1 : 0);
  }
}

std::vector<int64_t> ProbedFirstSteps(std::vector<int64_t> first_steps,
                                      int64_t steps) {
  const auto phases = static_cast<int64_t>(first_steps.size());
  if (steps < kProbedStepsOfPhase * phases) return first_steps;
  for (int64_t i = 0; i < phases; ++i) {
    first_steps[static_cast<size_t>(i)] = kProbedStepsOfPhase * i + 1;
  }
  return first_steps;
}

std::string PhaseHeading(int64_t first_step, std::string_view recipe) {
  return fmt::format("{}{}: {}\n", kFromStep, first_step, recipe);
}

std::vector<PhaseText> PhaseTexts(std::string_view resolved_recipe) {
  std::vector<PhaseText> phases = {{.sites = resolved_recipe}};
  for (size_t at = 0; at < resolved_recipe.size();) {
    const std::string_view rest = resolved_recipe.substr(at);
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const size_t next = std::min(at + line.size() + 1, resolved_recipe.size());
    const size_t colon = line.find(": ");
    if (line.starts_with(kFromStep) && colon != line.npos) {
      std::string_view& last = phases.back().sites;
      last.remove_suffix(rest.size());
      PhaseText& phase = phases.emplace_back();
      const std::string_view step =
          line.substr(kFromStep.size(), colon - kFromStep.size());
      std::from_chars(step.data(), step.data() + step.size(), phase.first_step);
      phase.recipe = line.substr(colon + 2);
      phase.sites = resolved_recipe.substr(next);
    }
    at = next;
  }
  return phases;
}

}  // namespace isoloss::runlog
