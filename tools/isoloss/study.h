// Declares the commands below `isoloss study`.
#pragma once

#include <vector>

#include "commands.h"

namespace isoloss::cli {

/// Returns one command for each study of the library.
std::vector<Command> StudyCommands();

}  // namespace isoloss::cli
