// Resolves the recipe of each GEMM of an arm, in each phase of its runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/model_graph.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// Returns the arm's first recipe, with the arm's own patterns in place of the
/// recipe's.
/// Errors   ConfigError if there is no such recipe.
precision::Recipe ArmRecipe(const Arm& arm);

/// A run has at most this many recipes, one after the other.
inline constexpr size_t kMaxPhases = 8;

/// Says why recipe `place` of arm.then cannot begin in a run of so many steps,
/// in words that follow its key `from`; "" if it can. It must begin after the
/// recipe before it has had a step, and have one itself.
std::string WrongPhase(const Arm& arm, size_t place, int64_t steps);

/// Returns the arm as if the recipe of phase `phase` were that of all steps; 0
/// is the first phase.
Arm ArmInPhase(const Arm& arm, size_t phase);

/// Holds from `first_step` on, until the next phase begins.
struct ArmPhase {
  int64_t first_step = 1;
  Arm arm;  ///< ArmInPhase
};
/// Returns the phases of an arm's runs, one if the arm has no `then`.
/// Errors   ConfigError that names the arm and the share if a phase has no
///          step (WrongPhase).
std::vector<ArmPhase> PhasesOf(const Arm& arm, int64_t steps);

/// True if some recipe of the arm quantises something.
bool QuantizesAnything(const Arm& arm);

/// Returns "mxfp8_rceil then bf16".
std::string RecipeNames(const Arm& arm);

/// A phase of an arm has this resolved recipe.
struct ResolvedPhase {
  int64_t first_step = 1;
  precision::ResolvedRecipe recipe;
};
/// Resolves the recipe of each GEMM in each phase of an arm's runs.
/// Errors   as ArmRecipe, PhasesOf and precision::ResolvedRecipe.
std::vector<ResolvedPhase> ResolvePhases(const Experiment& experiment,
                                         const Arm& arm);
/// Writes what each GEMM gets in each phase, as logs store it: the first
/// phase's precision::ResolvedRecipe::Describe, then for each later phase its
/// runlog::PhaseHeading and description.
std::string Describe(const std::vector<ResolvedPhase>& phases);

}  // namespace isoloss::train
