// The sub-commands of `isoloss golden`.
#pragma once

#include "commands.h"

namespace isoloss::cli {

Action DeclareGoldenUpdate(CLI::App& app);
Action DeclareGoldenCheck(CLI::App& app);

}  // namespace isoloss::cli
