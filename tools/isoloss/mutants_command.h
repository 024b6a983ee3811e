// What `isoloss mutants` does: one function for each of its sub-commands.
#pragma once

#include "commands.h"

namespace isoloss::cli {

/// Plants each of them and counts which ones a gate finds.
Action DeclareMutantsRun(CLI::App& app);

}  // namespace isoloss::cli
