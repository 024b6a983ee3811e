// Implements `isoloss lab recipes`, which prints the built-in recipes as TOML
// that users can write.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "isoloss/precision/recipe_file.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct RecipesArguments {
  std::string name;
  bool json = false;
};

ExitCode Recipes(const RecipesArguments& arguments) {
  std::vector<const precision::Recipe*> chosen = precision::AllRecipes();
  if (!arguments.name.empty()) {
    chosen = {&precision::RecipeByName(arguments.name)};
  }
  Json list = Json::array();
  for (const precision::Recipe* recipe : chosen) {
    const std::string toml = precision::RecipeText(*recipe);
    list.push_back({{"name", recipe->name},
                    {"summary", recipe->summary},
                    {"source", recipe->source},
                    {"toml", toml}});
    if (arguments.json) continue;
    fmt::print("{}",
               arguments.name.empty()
                   ? fmt::format("{:<28} {}\n", recipe->name, recipe->summary)
                   : toml);
  }
  if (arguments.json) PrintJson({{"recipes", std::move(list)}});
  return ExitCode::kPass;
}

Action DeclareRecipes(CLI::App& app) {
  auto arguments = std::make_shared<RecipesArguments>();
  AddOption(app, "name", arguments->name,
            "Print this recipe as TOML; without it all are listed")
      .TypeName(kRecipeName);
  DeclareJson(app, arguments->json, "with each recipe's TOML");
  Describe(app,
           "List the built-in recipes, or print one as the TOML that an "
           "experiment's [recipes] or a file of your own may hold. It reads "
           "back to the same bits");
  return [arguments] { return Recipes(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_recipes = {
    "recipes", "List built-in recipes, or print one as TOML",
    "isoloss lab recipes deepseek_v3_fp8", &DeclareRecipes};

}  // namespace isoloss::cli
