// What the program says of itself (--help) and of command lines that it can't
// take.
#pragma once

#include <string>

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace isoloss::cli {

/// Wraps help to the width of the terminal, or to 80 columns where there is
/// none; for `app` and the sub-commands that are added to it from now on.
void UseHelpFormat(CLI::App& app);

/// How a command's footer begins, as CLI11 has no other place: what lists of
/// commands say of it, and an example of one line, which help breaks.
std::string Footer(const std::string& summary, const std::string& example);
/// Those of `app`; "" if it has none.
std::string SummaryOf(const CLI::App& app);
std::string ExampleOf(const CLI::App& app);

/// The exit codes, as every footer ends.
std::string ExitCodeHelp();

/// `--resume=5` of `app` and its sub-commands: a value that changes nothing is
/// an error. For options that were declared before.
void RefuseFlagValues(CLI::App& app);

/// What is wrong with the command line that `app`, the program, was given:
/// one line of the form "command: argument, rule. Remedy."
std::string UsageMessage(const CLI::App* app, const CLI::Error& error);
/// Where no more is wrong than that a sub-command is missing, help, which lists
/// them; else the message.
std::string HelpOrUsageMessage(const CLI::App* app, const CLI::Error& error);

}  // namespace isoloss::cli
