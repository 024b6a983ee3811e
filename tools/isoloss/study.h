// The commands below `isoloss study`.
#pragma once

#include <vector>

#include "commands.h"

namespace isoloss::cli {

/// One for each study of the library.
std::vector<Command> StudyCommands();

}  // namespace isoloss::cli
