// Writes the help, and messages on command lines that the program can't take.
#pragma once

#include <string>

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace isoloss::cli {

/// Wraps help of `app` to the width of the terminal, or to 80 columns without a
/// terminal. It also holds for the sub-commands that are added later.
void UseHelpFormat(CLI::App& app);

/// Returns the beginning of a command's footer, as CLI11 has no other place for
/// it. It has the summary for lists of commands, and an example of one line,
/// which help breaks.
std::string Footer(const std::string& summary, const std::string& example);
/// Returns what Footer put into `app`; "" if there is none.
std::string SummaryOf(const CLI::App& app);
std::string ExampleOf(const CLI::App& app);

/// Returns the exit codes, with which every footer ends.
std::string ExitCodeHelp();

/// Makes a value of a flag of `app` and its sub-commands an error, such as
/// `--resume=5`, since the value would change nothing. Only options that were
/// declared before are checked.
void RefuseFlagValues(CLI::App& app);

/// Says what is wrong with the command line that `app`, the program, was given,
/// in one line of the form "command: argument, rule. Remedy."
std::string UsageMessage(const CLI::App* app, const CLI::Error& error);
/// Returns help, which lists the sub-commands, if nothing is wrong except that
/// a sub-command is missing; else the message.
std::string HelpOrUsageMessage(const CLI::App* app, const CLI::Error& error);

}  // namespace isoloss::cli
