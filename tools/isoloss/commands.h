// Defines what a sub-command is. Each has one file, and one line in
// commands.def.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "arguments.h"
#include "isoloss/system/exit_code.h"

namespace isoloss::cli {

using system::ExitCode;

/// The function that a sub-command runs once its arguments are parsed.
using Action = std::function<ExitCode()>;

struct Command {
  const char* name;
  const char* summary;
  const char* example;
  /// Declares the arguments on `app` and returns the function to run.
  Action (*declare)(CLI::App& app);
};

/// Adds sub-commands, of which one must be given, and returns the function that
/// runs the given one. The help of each ends with its example and the exit
/// codes.
Action DeclareCommands(CLI::App& app, std::span<const Command> commands);

/// Declares all commands and the options of the program itself on `app`.
/// Returns the function that runs the given command.
Action DeclareProgram(CLI::App& app);

/// Returns the command that `command` stands below, such as "study" for
/// "ladder"; "" if there is none.
std::string NameAbove(std::string_view command);

}  // namespace isoloss::cli
