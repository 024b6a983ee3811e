// isoloss study ladder: one experiment at several sizes, and what they say of a
// size that nobody trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/experiment_source.h"
#include "isoloss/scaling/ladder.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies {

inline constexpr double kBudgetMinutes = 90;
/// Of millions of parameters, and of tokens for each.
inline constexpr double kLargestFactor = 1e6;

struct LadderRequest {
  campaign::ExperimentSource source = {};
  std::vector<double> parameters_in_millions = {0.34, 1.3, 3, 6.7};
  std::vector<double> tokens_per_parameter = {1, 4, 20};
  size_t seeds = 8;  ///< from the experiment's first on
  /// Sizes that are expected to take longer, together with all cheaper ones,
  /// are left out; 0: none is. Empty: the sizes that an earlier call has
  /// chosen, else as kBudgetMinutes.
  std::optional<double> budget_minutes = std::nullopt;
  std::vector<scaling::Size> sizes = {{16e9, 50e9}, {671e9, 14.8e12}};
  double margin_percent = 0.25;
  bool quick = false;  ///< three tiny sizes and 4 seeds in place of the above
  /// Measure what the sizes cost, and choose by it; else the sizes of an
  /// earlier call count.
  bool estimate = true;
  std::filesystem::path out = {};  ///< "": runs/<experiment name>-ladder
};

/// A cell of the study with its size.
struct LadderRung {
  std::string name;  ///< "0.34M-4"
  scaling::Size size;
  double lr = 0;
  double seconds = 0;
  bool affordable = true;
};

struct LadderPlan {
  LadderRequest request;
  train::Experiment base;
  std::vector<LadderRung> rungs;  ///< ascending operations
  Study study;                    ///< of those that are affordable
  std::vector<std::string> notes;
};

/// Plans the rungs and measures what they cost.
/// Errors   as ExperimentSource::Load, ScaledModel; ConfigError if the
///          experiment has no arm besides the baseline, or fewer than 2 seeds
///          are asked for, or no rung fits the budget.
LadderPlan PlanLadder(const LadderRequest& request);

/// What the plan trains and takes, for people: a table.
std::string DescribePlan(const LadderPlan& plan);

/// What the finished runs in the plan's folder say, however many there are.
/// Errors   as campaign::ReadRuns and scaling::StateLadder.
scaling::LadderStatement JudgeLadder(const LadderPlan& plan);

/// Writes ladder.json and ladder.svg into the folder.
/// Errors   IoError.
void WriteLadder(const LadderPlan& plan,
                 const scaling::LadderStatement& statement);

}  // namespace isoloss::studies
