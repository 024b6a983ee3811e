// Compares two run logs for `compare`, and renders the result.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/first_divergence.h"
#include "isoloss/compare/largest_differences.h"
#include "isoloss/compare/pair.h"
#include "isoloss/compare/routing_difference.h"
#include "isoloss/compare/tensor_divergence.h"
#include "isoloss/document/json.h"

namespace isoloss::inspection {

/// Compares everything that two logs have in common.
struct LogComparison {
  const compare::Run* a = nullptr;
  const compare::Run* b = nullptr;
  compare::DivergenceOptions options;
  size_t steps = 0;  ///< common ones from the start
  compare::DivergenceReport report;
  /// The first difference of the curves alone, to the bit, if there is one.
  std::optional<compare::Divergence> curves;
  std::vector<compare::LargestDifference> parameters;
  std::vector<compare::LargestDifference> tensors;
  std::optional<compare::RoutingDifference> routing;

  /// Returns whether both runs belong to one experiment, though perhaps to
  /// different arms or seeds.
  bool OneExperiment() const;
  /// Returns whether both logs have the same number of steps and no difference
  /// in what both hold. The choice of tensors and parameters in a log is a
  /// setting and does not count.
  bool Equal() const;
};

/// Compares two logs.
/// Errors   FormatError if the logs have no common first step.
LogComparison CompareLogs(const compare::Run& a, const compare::Run& b,
                          const compare::DivergenceOptions& options);

/// Returns text for a terminal, with line ends.
std::string RenderComparison(const LogComparison& comparison);
document::Json ComparisonJson(const LogComparison& comparison);

/// Holds the runs that both folders have, and the names of runs that only one
/// has.
struct PairedFolders {
  PairedFolders() = default;
  PairedFolders(PairedFolders&&) = default;  // `pairs` points into `a` and `b`
  PairedFolders& operator=(PairedFolders&&) = default;

  std::vector<compare::Run> a;
  std::vector<compare::Run> b;
  std::vector<LogComparison> pairs;
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;

  bool Equal() const {
    return only_a.empty() && only_b.empty() &&
           std::ranges::all_of(pairs, &LogComparison::Equal);
  }
};

/// Pairs the logs of two folders by arm and seed.
/// Errors   ConfigError if one holds two logs of a run, or both have none in
///          common; as logs::ReadRuns and CompareLogs.
PairedFolders PairFolders(const std::filesystem::path& a,
                          const std::filesystem::path& b,
                          const compare::DivergenceOptions& options);

/// Render all pairs, each as RenderComparison and ComparisonJson do.
std::string RenderFolders(const PairedFolders& folders);
document::Json FoldersJson(const PairedFolders& folders);

}  // namespace isoloss::inspection
