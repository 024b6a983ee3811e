// Compares two dumps of tensors side by side, as JSON.
#pragma once

#include "isoloss/compare/dump_difference.h"
#include "isoloss/compare/error_growth.h"
#include "isoloss/document/json.h"
#include "isoloss/runlog/tensor_dump.h"

namespace isoloss::report {

/// Says how `a` and `b` differ, and which operation adds error.
document::Json DumpComparisonJson(const runlog::TensorDump& a,
                                  const runlog::TensorDump& b,
                                  const compare::DumpDifference& difference,
                                  const compare::ErrorGrowth& growth);

}  // namespace isoloss::report
