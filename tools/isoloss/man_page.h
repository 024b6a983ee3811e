// Manual pages, of what help says.
#pragma once

#include <string>

#include "command_tree.h"

namespace isoloss::cli {

/// The name of a command's page: "isoloss-golden-check".
std::string PageName(const CommandEntry& command);

/// The page of `command`, one of `program` or that itself, in roff with the
/// macros of man(7). Without a date, so that it depends on the program only.
std::string ManPage(const CommandEntry& program, const CommandEntry& command);

}  // namespace isoloss::cli
