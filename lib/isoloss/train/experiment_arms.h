// The arms of an experiment file, the recipes that they name, and what they are
// to a verdict.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/config/reader.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// Letters, digits, '_' and '-' (and '.' inside): fit for a file name and a
/// bare key.
bool IsPlainName(std::string_view name, bool dots);

/// `fields` is the section that holds the options, or some of them.
/// Errors   ConfigError if the options exclude each other.
void CheckExchange(const config::Reader& fields,
                   const ExchangeConfig& exchange);

/// [recipes]: those that are written out, or of files beside `experiment`.
/// Errors   ConfigError for a name that is none, and as precision::ReadRecipe.
std::vector<precision::Recipe> ReadRecipes(
    config::Reader recipes, const std::filesystem::path& experiment);

/// [arms], in the order of the file. `exchange` is that of [parallel].
/// Errors   ConfigError for the first broken rule of an arm.
std::vector<Arm> ReadArms(config::Reader arms, const ExchangeConfig& exchange,
                          const std::vector<precision::Recipe>& recipes);

/// Each arm's patterns must fit the model.
/// Errors   ConfigError that names the pattern's place.
void CheckRecipes(config::Reader& arms, const Experiment& experiment);

/// gate.control must name an arm that others can be judged beside. `gate` is
/// [gate].
/// Errors   ConfigError if it names no arm, the baseline, or the only other
///          arm.
void CheckControl(const config::Reader& gate, const Experiment& experiment);

}  // namespace isoloss::train
