// What `isoloss mutants` does: one function for each of its sub-commands.
#pragma once

#include "commands.h"

namespace isoloss::cli {

/// Lists them.
Action DeclareMutantsList(CLI::App& app);
/// Plants each of them and counts which ones a gate finds.
Action DeclareMutantsRun(CLI::App& app);

}  // namespace isoloss::cli
