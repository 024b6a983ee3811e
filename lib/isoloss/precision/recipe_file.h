// Recipes as TOML: users write their own, and registered ones are printed.
//
//   name = "my_fp8"
//   summary = "what it is, in a line"
//   sites = "routed_experts"          # or include = […], exclude = […]
//
//   [operands.tile]
//   element = "e4m3"
//   scale_format = "fp32"
//   scale_rule = "deepgemm"
//   block_columns = 128
//
//   [fprop]
//   x = "tile"
//   w = "tile"
//   promote_every = 128
//
// Besides, `norm_gains` and the keys q, k, p, v, do and ds of [attention] name
// operands (docs/model.md, section 16).
#pragma once

#include <string>
#include <string_view>

#include "isoloss/config/reader.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::precision {

/// Reads the keys of one recipe. `name`: of the section that it stands in; ""
/// reads the key `name`.
/// Errors   ConfigError with the place: unknown keys, words that name nothing,
///          descriptions that are wrong (WrongPrecision), a product without an
///          operand of that name, and a name of recipes.def whose content
///          differs from the registered recipe's.
Recipe ReadRecipe(config::Reader fields, std::string_view name = "");

/// Reads a whole file. `file` is its name in messages.
Recipe ParseRecipe(std::string_view text, std::string file);

/// The recipe as TOML that reads back to the same content, `section` before the
/// names of its tables ("recipes.mine"), or "" from the top. Nothing that
/// equals its default is printed.
std::string RecipeText(const Recipe& recipe, const std::string& section = "");

}  // namespace isoloss::precision
