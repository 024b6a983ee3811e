// Says why equal inputs of an operation gave two results.
#pragma once

#include <string>

#include "isoloss/base/executor.h"
#include "isoloss/certify/cause.h"

namespace isoloss::certify {

/// Judges both results by their inputs, as check-tensors does, and compares
/// how they were added up. The difference is of What::kResult.
Cause CauseOfResult(const OperationDifference& difference,
                    const OperationFiles& files, const std::string& recipe,
                    Executor& executor);

}  // namespace isoloss::certify
