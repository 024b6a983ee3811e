// The sub-commands of the program: one file each, one line each in
// commands.def.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "arguments.h"
#include "isoloss/campaign/exit_code.h"

namespace isoloss::cli {

using campaign::ExitCode;

/// What a sub-command runs once its arguments are parsed.
using Action = std::function<ExitCode()>;

struct Command {
  const char* name;
  const char* summary;
  const char* example;
  /// Declares its arguments on `app` and returns what to run.
  Action (*declare)(CLI::App& app);
};

/// Adds sub-commands, of which one must be given; runs that one. Each one's
/// help ends with its example and the exit codes.
Action DeclareCommands(CLI::App& app, std::span<const Command> commands);

/// Declares all of the program's commands on `app`, and what it takes besides.
/// Returns what runs the one that is given.
Action DeclareProgram(CLI::App& app);

/// The command that `command` stands below, as "study" of "ladder"; else "".
std::string NameAbove(std::string_view command);

}  // namespace isoloss::cli
