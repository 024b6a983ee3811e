// What `compare` finds in two run logs, and how it says so.
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

namespace isoloss::campaign {

/// Everything that two logs have in common, compared.
struct LogComparison {
  const compare::Run* a = nullptr;
  const compare::Run* b = nullptr;
  compare::DivergenceOptions options;
  size_t steps = 0;  ///< common ones from the start
  compare::DivergenceReport report;
  /// Of the curves alone, to the bit.
  std::optional<compare::Divergence> curves;
  std::vector<compare::LargestDifference> parameters;
  std::vector<compare::LargestDifference> tensors;
  std::optional<compare::RoutingDifference> routing;

  /// Are both runs of one experiment, though of different arms or seeds?
  bool OneExperiment() const;
  /// No difference in what both logs hold, and as many steps in both. Which
  /// tensors and parameters a log holds is a setting and no number.
  bool Equal() const;
};

/// Errors   FormatError if the logs have no common first step.
LogComparison CompareLogs(const compare::Run& a, const compare::Run& b,
                          const compare::DivergenceOptions& options);

/// For a terminal, with line ends.
std::string RenderComparison(const LogComparison& comparison);
document::Json ComparisonJson(const LogComparison& comparison);

/// The runs that both folders hold, and which one holds alone.
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
///          common; as ReadRuns and CompareLogs.
PairedFolders PairFolders(const std::filesystem::path& a,
                          const std::filesystem::path& b,
                          const compare::DivergenceOptions& options);

/// As RenderComparison and ComparisonJson, of all pairs.
std::string RenderFolders(const PairedFolders& folders);
document::Json FoldersJson(const PairedFolders& folders);

}  // namespace isoloss::campaign
