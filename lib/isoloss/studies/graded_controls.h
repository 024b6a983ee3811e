// Trains a control in nested parts of its sites, and chooses the parts whose
// harm lies at about half a margin and at about one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/studies/plan.h"
#include "isoloss/train/experiment.h"

namespace isoloss::studies {

/// A grade is a harm that a control should have.
struct Grade {
  const char* suffix;  ///< of the arm's name
  double margins;
};
inline constexpr Grade kGrades[] = {{"_half", 0.5}, {"_one", 1.25}};
/// A part serves a grade if its harm is within this factor of it. So no part
/// serves both.
inline constexpr double kFarthest = 1.5;

/// Returns patterns of up to six nested parts of the sites `chosen`, mildest
/// first. The last has all of them, and each other one every second kind of the
/// next, or every second site where one kind is left. `all` are the sites of
/// the model.
std::vector<std::vector<std::string>> NestedParts(
    std::span<const std::string> chosen, std::span<const std::string> all);

/// Returns the place of the harm that lies nearest to `target` by its factor,
/// and within kFarthest; of equal ones the first.
std::optional<size_t> NearestPart(std::span<const double> harms, double target);

/// Holds what the runs say of the parts of a control.
struct GradedControl {
  train::Experiment experiment;  ///< that was given
  std::string control;           ///< its arm
  std::vector<uint64_t> seeds = {};
  std::vector<train::Arm> parts = {};  ///< mildest first; the last: all sites
  /// harms[part][seed] is the difference of the final window in percent of the
  /// baseline's loss, infinite where training diverged.
  std::vector<std::vector<double>> harms = {};
  double margin_percent = 0;

  std::vector<double> Means() const;
  /// Returns the means, as ascending from part to part (stats::IsotonicFit).
  std::vector<double> Fit() const;
  /// Returns the part that serves `grade`, if any does.
  std::optional<size_t> PartOf(const Grade& grade) const;
  /// Returns the part that serves each grade, but for the whole control, as an
  /// arm with the grade's name.
  std::vector<train::Arm> Arms() const;
  /// Returns gate.control with these arms first.
  std::vector<std::string> Controls() const;
  /// Returns Arms as TOML; "" if there are none.
  std::string ArmsText() const;
};

/// Returns the first control that is no part of another.
/// Errors   ConfigError if there is none, or it has no sites or several
///          recipes; if an arm has the name of a grade and is no control.
const train::Arm& ControlOf(const train::Experiment& experiment);

/// Plans one cell with the baseline and the parts of ControlOf, on `seeds`
/// seeds that the experiment does not train.
/// Errors   as ControlOf; ConfigError if the margin is one in tokens.
Plan PlanControls(const train::Experiment& experiment, size_t seeds,
                  const std::filesystem::path& folder);

/// Reads the runs of a plan for `experiment`.
/// Errors   as RunsOf; ThrowNothingToJudge if a run has not ended.
GradedControl ReadParts(const Plan& plan, const train::Experiment& experiment);

/// Returns the text of an experiment file with Arms and Controls, without those
/// of an earlier call.
std::string WithControls(const std::string& toml, const GradedControl& graded);

/// Returns what WithControls makes of the experiment's file.
/// Errors   IoError; ConfigError if the file does not read back, or does not
///          say `control = ` in a table [gate].
std::string RewrittenFile(const GradedControl& graded);

}  // namespace isoloss::studies
