// isoloss study stress: recipes under what low precision is known to suffer
// from.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/campaign/experiment_source.h"
#include "isoloss/stress/stress_map.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies {

struct StressRequest {
  campaign::ExperimentSource source = {};
  std::vector<std::string> modes = {};  ///< empty: all
  size_t seeds = 8;
  bool quick = false;    ///< three modes and 4 seeds in place of both
  bool estimate = true;  ///< measure what the modes cost
  /// Leading indicators are recorded every so many steps; 0: never.
  int64_t indicators_every = 0;
  std::filesystem::path out = {};  ///< "": runs/<experiment name>-stress
};

struct StressPlan {
  StressRequest request;
  train::Experiment base;
  std::string reference;               ///< arm of recipe mxfp8_rceil
  std::vector<std::string> known_bad;  ///< arms
  Study study;                         ///< a cell for each mode
  std::vector<std::string> notes;
};

/// The experiment's arms, and those that are missing of mxfp8_rceil and the
/// recipes that are known to be bad: scales rounded down, E5M2 gradients, MXFP4
/// and DeepSeek's 128 x 128 gradients.
/// Errors   as ExperimentSource::Load and StressModeByName; ConfigError for
///          fewer than 2 seeds.
StressPlan PlanStress(const StressRequest& request);

/// Modes, and what they take.
std::string DescribePlan(const StressPlan& plan);

/// What the finished runs say. Modes without any are left out, and named.
/// Errors   as campaign::ReadRuns and stress::MakeStressMap.
stress::StressMap JudgeStress(const StressPlan& plan);

/// Writes stress.json and stress.svg into the folder. Errors   IoError.
void WriteStress(const StressPlan& plan, const stress::StressMap& map);

}  // namespace isoloss::studies
