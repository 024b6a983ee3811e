// Trains the baseline of an experiment at several learning rates, and says
// which rate ends with the least held-out loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/stats/rate_optimum.h"
#include "isoloss/studies/plan.h"
#include "isoloss/train/experiment.h"

namespace isoloss::studies {

/// A sweep begins with this many rates, each twice the one before, and
/// train.lr in their middle. It goes on beyond an edge where the loss still
/// falls, up to kMostRates.
inline constexpr int kFirstRates = 5;
inline constexpr size_t kMostRates = 11;

/// Holds the held-out losses of a sweep, in nats.
struct SweptRates {
  std::vector<uint64_t> seeds;
  std::vector<double> rates;  ///< ascending
  /// Each rate has a loss for each seed, infinite where training diverged.
  std::vector<std::vector<double>> losses;

  std::vector<double> Means() const;
  std::optional<stats::RateOptimum> Optimum() const;
  /// Returns the least and the largest optimum of a single seed; empty if every
  /// rate diverged for one.
  std::optional<std::pair<double, double>> Spread() const;
  /// Returns the optimum of each seed; empty as Spread.
  std::vector<double> SeedOptima() const;
};

/// Plans the first rates in `folder`: a cell for each, with `seeds` seeds that
/// the experiment does not train, and losses alone in the logs.
/// Errors   ConfigError if no rate of the grid is within the key's range.
Plan PlanRates(const train::Experiment& experiment, size_t seeds,
               const std::filesystem::path& folder);

/// Reads the runs of `plan`, and trains further rates as long as the best one
/// lies at an edge. Without `may_train` it takes those that are there.
/// Special  empty if a signal came.
/// Errors   as Train; ThrowNothingToJudge if a run of the plan has not ended.
std::optional<SweptRates> SweepRates(const Plan& plan, bool may_train);

/// Returns [tuning] as the experiment that was swept is to have it.
train::TuningConfig TuningOf(const SweptRates& swept,
                             const train::Experiment& experiment);

/// Returns [tuning] as TOML, or [tuning.scaled] of a sweep that was asked for
/// `scaled_parameters`.
std::string TuningText(const train::TuningConfig& tuning,
                       std::optional<double> scaled_parameters = std::nullopt);

/// Returns the text of an experiment file with a table, whose text begins with
/// its heading, in place of an earlier one.
/// Errors   IoError; ConfigError if the file cannot have the table so.
std::string WithTuning(const std::filesystem::path& file,
                       const std::string& table);

}  // namespace isoloss::studies
