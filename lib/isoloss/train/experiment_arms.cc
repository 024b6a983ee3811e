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

/// Returns the recipe of [recipes] of that name; nothing if it is built in.
std::optional<precision::Recipe> FindRecipe(
    const Reader& fields, const std::vector<precision::Recipe>& recipes,
    const std::string& name) {
  std::vector<std::string> names;
  for (const precision::Recipe& recipe : recipes) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  for (const precision::Recipe* recipe : precision::AllRecipes()) {
    if (recipe->name == name) return std::nullopt;
    names.push_back(recipe->name);
  }
  fields.Fail("recipe",
              fmt::format("is \"{}\", but must be one of {}.{}", name,
                          fmt::join(names, ", "), DidYouMean(name, names)));
}

/// Reads a recipe's name and layers, which an arm has and each table `then`.
template <typename Choice>
void ReadChoice(Reader& fields, const std::vector<precision::Recipe>& recipes,
                Choice& choice) {
  if (const auto* sites = precision::ReadSitePreset(fields)) {
    choice.include = sites->include;
    choice.exclude = sites->exclude;
  }
  Visit(fields, choice);
  choice.own_recipe = FindRecipe(fields, recipes, choice.recipe);
}

std::vector<LaterRecipe> ReadLaterRecipes(
    Reader& arm, const std::vector<precision::Recipe>& recipes) {
  std::vector<LaterRecipe> then;
  for (Reader& fields : arm.TableList("then")) {
    fields.Require("from", "It is the share of the steps before the recipe.");
    fields.Require("recipe", "It names the recipe of the steps that follow.");
    ReadChoice(fields, recipes, then.emplace_back());
    fields.RejectUnknown();
  }
  if (then.size() >= kMaxPhases) {
    arm.Fail("then", fmt::format("has {} tables, but a run has at most {} "
                                 "recipes. Leave some out.",
                                 then.size(), kMaxPhases));
  }
  return then;
}

Arm ReadArm(const std::string& name, Reader fields,
            const ExchangeConfig& exchange,
            const std::vector<precision::Recipe>& recipes) {
  Arm arm{.name = name, .exchange = exchange};
  fields.Require("recipe", "Each arm names the recipe it trains with.");
  ReadChoice(fields, recipes, arm);
  if (!arm.perturb && fields.Has("perturb_draw")) {
    fields.Fail("perturb_draw",
                "is given, but nothing is perturbed. Set perturb = "
                "\"one_ulp\" or leave the key out.");
  }
  arm.then = ReadLaterRecipes(fields, recipes);
  fields.RejectUnknown();
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

namespace {

/// Requires that the patterns of a choice of `fields` fit the model.
void CheckPatterns(const Reader& fields, const Arm& arm,
                   const std::vector<precision::Site>& sites) {
  const auto resolve = [&](const Arm& choice) {
    precision::ResolvedRecipe(ArmRecipe(choice), sites);
  };
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
    ThrowError(error.kind(), "{}: {}", fields.Where({key, "recipe"}),
               error.what());
  }
}

}  // namespace

void CheckRecipes(Reader& arms, const Experiment& experiment) {
  const std::vector<precision::Site> sites = model::GemmSites(experiment.model);
  for (const Arm& arm : experiment.arms) {
    Reader fields = arms.Section(arm.name);
    CheckPatterns(fields, arm, sites);
    const std::vector<Reader> then = fields.TableList("then");
    for (size_t i = 0; i < then.size(); ++i) {
      const std::string wrong = WrongPhase(arm, i, experiment.train.steps);
      if (!wrong.empty()) then[i].Fail("from", wrong);
      CheckPatterns(then[i], ArmInPhase(arm, i + 1), sites);
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
