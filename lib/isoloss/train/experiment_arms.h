// Reads the arms of an experiment file, the recipes that they name, and their
// purposes in a verdict.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/config/reader.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// Returns whether a name fits a file name and a bare key: letters, digits, '_'
/// and '-' (and '.' inside, if `dots`).
bool IsPlainName(std::string_view name, bool dots);

/// Checks the exchange. `fields` is the section that holds the options, or some
/// of them.
/// Errors   ConfigError if the options exclude each other.
void CheckExchange(const config::Reader& fields,
                   const ExchangeConfig& exchange);

/// Reads the recipes of [recipes], which are written out or in files beside
/// `experiment`.
/// Errors   ConfigError for an invalid name, and as precision::ReadRecipe.
std::vector<precision::Recipe> ReadRecipes(
    config::Reader recipes, const std::filesystem::path& experiment);

/// Reads [arms], in the order of the file. `exchange` is that of [parallel].
/// Errors   ConfigError for the first broken rule of an arm.
std::vector<Arm> ReadArms(config::Reader arms, const ExchangeConfig& exchange,
                          const std::vector<precision::Recipe>& recipes);

/// Requires that each arm's patterns fit the model, and that each of its
/// recipes has a step.
/// Errors   ConfigError that names the place of the pattern or share.
void CheckRecipes(config::Reader& arms, const Experiment& experiment);

/// Requires that gate.control names arms and that a further candidate remains.
/// `gate` is [gate].
/// Errors   ConfigError if a name is of no arm, or the baseline's; if no other
///          arm remains.
void CheckControl(const config::Reader& gate, const Experiment& experiment);

}  // namespace isoloss::train
