// Compares what the ranks of one step recorded with each other.
#pragma once

#include <vector>

#include "isoloss/operations/check.h"

namespace isoloss::operations {

/// Lists parameters whose replicas have parted, and layers whose experts have
/// other rows, over all ranks of a step, than their router chose.
std::vector<OpenPoint> RankPointsOf(const std::vector<OperationFile>& files);

/// Describes how the gradient of one replica differs from another's, as an end
/// of a sentence: it may be a multiple.
std::string GradientDifference(const Floats& here, const Floats& there);

}  // namespace isoloss::operations
