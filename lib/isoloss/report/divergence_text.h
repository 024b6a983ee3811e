// Describes in words where two runs first part.
#pragma once

#include <string>
#include <vector>

#include "isoloss/compare/largest_differences.h"
#include "isoloss/compare/routing_difference.h"
#include "isoloss/compare/tensor_divergence.h"

namespace isoloss::report {

/// Returns lines of text with their ends: the first difference with both
/// values, the earlier tensors that agree, at which steps tensors can be
/// compared, and names that only one log has.
std::string RenderDivergence(const compare::DivergenceReport& report,
                             const compare::DivergenceOptions& options);

/// Says how many choices of experts differ, by layer: in all steps and in the
/// last one.
std::string RenderRouting(const compare::RoutingDifference& routing);

/// Returns a table; "" if there is nothing in it.
std::string RenderLargest(
    const std::vector<compare::LargestDifference>& largest);

}  // namespace isoloss::report
