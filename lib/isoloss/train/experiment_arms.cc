#include "isoloss/train/experiment_arms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/text_file.h"
#include "isoloss/model/graph.h"
#include "isoloss/precision/recipe_file.h"
#include "isoloss/precision/site_presets.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/experiment_sections.h"

namespace isoloss::train {

using config::Reader;

bool IsPlainName(std::string_view name, bool dots) {
  const auto plain = [dots](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || (dots && c == '.');
  };
  return !name.empty() && name.size() <= 100 && name.front() != '.' &&
         name.front() != '-' && std::all_of(name.begin(), name.end(), plain);
}

void CheckExchange(const Reader& fields, const ExchangeConfig& exchange) {
  expert_parallel::Validate(
      exchange.Resolved(),
      fields.Where({"weight_site", "exchange", "payload"}).c_str());
}

namespace {

/// Reads a recipe of [recipes.<name>], which is written out or names a file.
precision::Recipe ReadOwnRecipe(const std::string& name, Reader& fields,
                                const std::filesystem::path& experiment) {
  if (!fields.Has("file")) return precision::ReadRecipe(fields, name);
  std::string file;
  fields.Text("file", file);
  fields.RejectUnknown();
  const std::filesystem::path path =
      (experiment.parent_path() / file).lexically_normal();
  precision::Recipe recipe = precision::ParseRecipe(
      ReadTextFile(path, "Give the path of a recipe's file."), path.string());
  if (recipe.name != name) {
    fields.Fail("file",
                fmt::format("is \"{}\", which holds the recipe `{}`, but the "
                            "section is [recipes.{}]. Give both one name.",
                            file, recipe.name, name));
  }
  return recipe;
}

}  // namespace

std::vector<precision::Recipe> ReadRecipes(
    Reader recipes, const std::filesystem::path& experiment) {
  std::vector<precision::Recipe> result;
  for (auto& [name, fields] : recipes.Sections()) {
    if (!IsPlainName(name, false)) {
      recipes.Fail(name,
                   "is not a name for logs: a recipe's must have 1 to 100 "
                   "letters, digits, `_` or `-`. Rename the recipe.");
    }
    result.push_back(ReadOwnRecipe(name, fields, experiment));
  }
  return result;
}

namespace {

/// Makes the arm use the recipe that it names.
void FindRecipe(const Reader& fields,
                const std::vector<precision::Recipe>& recipes, Arm& arm) {
  std::vector<std::string> names;
  for (const precision::Recipe& recipe : recipes) {
    if (recipe.name == arm.recipe) return arm.Use(recipe);
    names.push_back(recipe.name);
  }
  for (const precision::Recipe* recipe : precision::AllRecipes()) {
    if (recipe->name == arm.recipe) return;
    names.push_back(recipe->name);
  }
  fields.Fail("recipe", fmt::format("is \"{}\", but must be one of {}.{}",
                                    arm.recipe, fmt::join(names, ", "),
                                    DidYouMean(arm.recipe, names)));
}

Arm ReadArm(const std::string& name, Reader fields,
            const ExchangeConfig& exchange,
            const std::vector<precision::Recipe>& recipes) {
  Arm arm{.name = name, .exchange = exchange};
  fields.Require("recipe", "Each arm names the recipe it trains with.");
  if (const auto* sites = precision::ReadSitePreset(fields)) {
    arm.include = sites->include;
    arm.exclude = sites->exclude;
  }
  Visit(fields, arm);
  if (!arm.perturb && fields.Has("perturb_draw")) {
    fields.Fail("perturb_draw",
                "is given, but nothing is perturbed. Set perturb = "
                "\"one_ulp\" or leave the key out.");
  }
  fields.RejectUnknown();
  FindRecipe(fields, recipes, arm);
  CheckExchange(fields, arm.exchange);
  return arm;
}

}  // namespace

std::vector<Arm> ReadArms(Reader arms, const ExchangeConfig& exchange,
                          const std::vector<precision::Recipe>& recipes) {
  std::vector<Arm> result;
  for (auto& [name, fields] : arms.Sections()) {
    if (!IsPlainName(name, false)) {
      arms.Fail(name,
                "is not a name for files: an arm's must have 1 to 100 "
                "letters, digits, `_` or `-`. Rename the arm.");
    }
    result.push_back(ReadArm(name, fields, exchange, recipes));
  }
  return result;
}

void CheckRecipes(Reader& arms, const Experiment& experiment) {
  const std::vector<precision::Site> sites = model::GemmSites(experiment.model);
  const auto resolve = [&](const Arm& arm) {
    precision::ResolvedRecipe(ArmRecipe(arm), sites);
  };
  for (const Arm& arm : experiment.arms) {
    try {
      resolve(arm);
    } catch (const Error& error) {
      // Finds out which of the two lists the error is about.
      const char* key = "exclude";
      try {
        Arm including = arm;
        including.exclude.reset();
        resolve(including);
      } catch (const Error&) {
        key = "include";
      }
      ThrowError(error.kind(), "{}: {}",
                 arms.Section(arm.name).Where({key, "recipe"}), error.what());
    }
  }
}

void CheckControl(const Reader& gate, const Experiment& experiment) {
  const std::vector<std::string>& controls = experiment.gate.control;
  if (controls.empty()) return;
  std::vector<std::string> others;
  for (const Arm& arm : experiment.arms) others.push_back(arm.name);
  const std::string baseline = others.front();
  others.erase(others.begin());
  for (const std::string& control : controls) {
    if (control == baseline) {
      gate.Fail("control",
                fmt::format("names \"{}\", the baseline, but a control is "
                            "judged against it. Name another arm.",
                            baseline));
    }
    if (std::ranges::count(others, control) == 0) {
      gate.Fail(
          "control",
          fmt::format("names \"{}\", but must name arms of {}.{}", control,
                      fmt::join(others, ", "), DidYouMean(control, others)));
    }
  }
  if (others.size() == controls.size()) {
    gate.Fail("control",
              fmt::format("names {}, all arms besides the baseline, but a "
                          "control is judged beside a candidate. Add an arm "
                          "or leave the key out.",
                          fmt::join(controls, ", ")));
  }
}

}  // namespace isoloss::train
