// The program isoloss: parses the command line, runs one sub-command, turns
// errors into messages and exit codes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <vector>

#include "commands.h"
#include "exit_code.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "isoloss/kernels/targets.h"

namespace isoloss::cli {
namespace {

std::string VersionText() {
  const BuildInfo build = GetBuildInfo();
  return fmt::format("isoloss {} ({}, {}, kernels: {})", build.version,
                     build.commit, build.compiler, kernels::ActiveTarget());
}

int Run(int argc, char** argv) {
  kernels::ForceTargetFromEnvironment();
  CLI::App app(
      "isoloss verifies numerical convergence: does a precision change alter "
      "training?",
      "isoloss");
  app.set_version_flag("--version", VersionText);
  app.require_subcommand(1);
  app.footer(kExitCodeHelp);
  // Exactly one action: that of the sub-command that was given.
  Action chosen;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->footer(
        fmt::format("Example:\n  {}\n\n{}", command.example, kExitCodeHelp));
    const Action action = command.declare(*sub);
    sub->parse_complete_callback([&chosen, action] { chosen = action; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return static_cast<int>(app.exit(error) == 0 ? ExitCode::kPass
                                                 : ExitCode::kUsage);
  }
  return static_cast<int>(chosen());
}

}  // namespace
}  // namespace isoloss::cli

int main(int argc, char** argv) {
  using isoloss::cli::ExitCode;
  try {
    return isoloss::cli::Run(argc, argv);
  } catch (const isoloss::Error& error) {
    fmt::print(stderr, "isoloss: {}\n", error.what());
    return static_cast<int>(ExitCode::kInvalid);
  } catch (const std::exception& error) {
    fmt::print(stderr, "isoloss: internal error: {}\n", error.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}
