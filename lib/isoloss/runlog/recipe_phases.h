// Describes recipes that change in mid-run, in an experiment's text and in a
// log's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::runlog {

/// Returns the last step of a run that a share of its steps covers: `share` *
/// `steps`, rounded to the nearest step.
int64_t LastStepOf(double share, int64_t steps);

/// Describes the recipe of an arm by its experiment's text.
struct RecipePlan {
  std::string name =
      {};  ///< as the attribute `recipe`; "" if there is no such arm
  std::vector<int64_t> first_steps = {};  ///< of the phases after the first one
};
RecipePlan RecipePlanOf(const std::string& experiment_text,
                        const std::string& arm, int64_t steps);

/// A probe trains each phase but the last for so many steps, in all cases but
/// `plain`, because the run's own switches come late.
inline constexpr int64_t kProbedStepsOfPhase = 2;
/// Returns the first steps that the phases of a run have in these cases. They
/// are `first_steps`, those of the run itself, if it has too few steps.
std::vector<int64_t> ProbedFirstSteps(std::vector<int64_t> first_steps,
                                      int64_t steps);

/// Stands between the names of two phases' recipes.
inline constexpr std::string_view kThen = " then ";

/// Describes a phase in the attribute `resolved_recipe`.
struct PhaseText {
  int64_t first_step = 1;
  std::string_view recipe = {};  ///< "" of the first phase
  std::string_view sites = {};   ///< one line for each
};
/// Returns the line that begins the text of a later phase.
std::string PhaseHeading(int64_t first_step, std::string_view recipe);
/// Divides the text at such lines.
std::vector<PhaseText> PhaseTexts(std::string_view resolved_recipe);

}  // namespace isoloss::runlog
