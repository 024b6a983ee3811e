// isoloss study sites: which products of which GEMMs can be quantised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/experiment_source.h"
#include "isoloss/sites/statement.h"
#include "isoloss/studies/site_kinds.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies {

struct SitesRequest {
  campaign::ExperimentSource source = {};
  std::string arm = {};  ///< "": the candidate, or the first of several
  size_t seeds = 8;
  double margin_percent = 0.25;
  bool quick = false;              ///< 20 steps, 3 seeds
  bool estimate = true;            ///< measure what it costs
  std::filesystem::path out = {};  ///< "": runs/<experiment name>-sites
};

struct SitesPlan {
  SitesRequest request;
  train::Experiment base;
  std::string arm;
  SiteProducts products;
  std::vector<sites::NamedSet> sets;  ///< the arm's own, and published ones
  Study study;                        ///< one cell: every arm of the design
  double seconds_of_a_run = 0;
  std::vector<std::string> notes;
};

/// Errors   as ExperimentSource::Load and SiteProducts; ConfigError if the
///          baseline quantises, no arm quantises, or fewer than 2 seeds are
///          asked for.
SitesPlan PlanSites(const SitesRequest& request);

/// What the plan trains and takes, for people.
std::string DescribePlan(const SitesPlan& plan);

/// Where ProductErrors keeps what it has measured.
std::filesystem::path ErrorsFile(const SitesPlan& plan);

/// Gradients with each product alone against the baseline's, measured once for
/// a folder and kept in its gradient_errors.json. Nothing if a signal came,
/// none if they are not there and may not be measured.
/// Shapes   result[product] = {at step 1, at the last step}; fewer where the
///          baseline's step was not finite.
/// Errors   as GradientErrors; FormatError for a file of another shape.
std::optional<std::vector<std::vector<double>>> ProductErrors(
    const SitesPlan& plan, bool may_measure);

/// What the finished runs say; of seeds that every arm has finished. `errors`
/// may be empty.
/// Errors   as campaign::ReadRuns and sites::Judge.
sites::Statement JudgeSites(const SitesPlan& plan,
                            const std::vector<std::vector<double>>& errors);

/// A study of the recipe that was chosen beside the baseline, in the same
/// folder; empty if none was.
std::optional<Study> RecipeStudy(const SitesPlan& plan,
                                 const sites::Statement& statement);

/// Adds what the recipe's runs say, if there are any with all seeds.
void AddRecipeRuns(const Study& study, sites::Statement& statement);

/// Writes sites.json, sites.svg and recipe.toml (removed if there is no
/// recipe) into the folder.
/// Errors   IoError.
void WriteSites(const SitesPlan& plan, const sites::Statement& statement);

}  // namespace isoloss::studies
