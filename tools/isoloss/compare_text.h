// What `compare` finds in two run logs, and how it says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/first_divergence.h"
#include "isoloss/compare/largest_differences.h"
#include "isoloss/compare/pair.h"
#include "isoloss/compare/routing_difference.h"
#include "isoloss/compare/tensor_divergence.h"
#include "json_numbers.h"

namespace isoloss::cli {

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

void PrintComparison(const LogComparison& comparison);
Json ComparisonJson(const LogComparison& comparison);

}  // namespace isoloss::cli
