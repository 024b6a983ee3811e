// Reads and writes recipes as TOML. Users write their own, and registered ones
// are printed.
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
// The recipe may also have `norm_gains`, and the keys q, k, p, v, do and ds of
// [attention]. They name operands too (docs/model.md, section 16).
#pragma once

#include <string>
#include <string_view>

#include "isoloss/config/reader.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::precision {

/// Reads the keys of one recipe. `name` is the name of its section; if it is
/// "", the key `name` is read.
/// Errors   ConfigError with the place. Mistakes are unknown keys, words that
///          name nothing, wrong descriptions (WrongPrecision) and products
///          with an operand that is not described. A name of recipes.def is
///          one if the content differs from the registered recipe's.
Recipe ReadRecipe(config::Reader fields, std::string_view name = "");

/// Reads a whole file. `file` is its name in messages.
Recipe ParseRecipe(std::string_view text, std::string file);

/// Returns the registered recipe of that name, or the one in a file, whose name
/// ends in `.toml`.
/// Errors   those of RecipeByName, ReadTextFile and ParseRecipe.
Recipe RecipeByNameOrFile(const std::string& name);

/// Returns the recipe as TOML that reads back to the same content. `section`
/// ("recipes.mine") is put before the names of its tables; "" means the top of
/// a file. Keys that equal their defaults are not printed.
std::string RecipeText(const Recipe& recipe, const std::string& section = "");

}  // namespace isoloss::precision
