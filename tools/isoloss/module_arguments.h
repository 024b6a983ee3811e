// Declares which modules of a trainer are quantised.
#pragma once

#include "arguments.h"
#include "isoloss/operations/check.h"

namespace isoloss::cli {

/// Declares --include and --exclude.
void DeclareModulePatterns(CLI::App& app, operations::CheckOptions& options);

}  // namespace isoloss::cli
