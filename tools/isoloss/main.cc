// The program isoloss: parses the command line, runs one sub-command, turns
// errors into messages and exit codes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "commands.h"
#include "exit_code.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/transport/launch.h"

namespace isoloss::cli {
namespace {

std::string VersionText() {
  const BuildInfo build = GetBuildInfo();
  return fmt::format("isoloss {} ({}, {}, kernels: {})", build.version,
                     build.commit, build.compiler, kernels::ActiveTarget());
}

/// What is wrong with the command line, and where to read what is right.
std::string UsageMessage(const CLI::App* app, const CLI::Error& error) {
  std::string command = "isoloss";
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    command += " " + app->get_name();
  }
  std::vector<std::string> names;
  for (const CLI::App* sub :
       app->get_subcommands([](const CLI::App* /*any*/) { return true; })) {
    names.push_back(sub->get_name());
  }
  const std::vector<std::string> unknown = app->remaining();
  if (!names.empty() && !unknown.empty()) {
    return fmt::format("{}: `{}` is no sub-command. Sub-commands: {}.{}\n",
                       command, unknown.front(), fmt::join(names, ", "),
                       DidYouMean(unknown.front(), names));
  }
  return fmt::format("{}: {}. Run `{} --help`.\n", command, error.what(),
                     command);
}

/// Text that could not be written is a failed file operation, not a success.
void FlushStandardOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  ThrowError(ErrorKind::kIo,
             "standard output: can't be written: {}. Make room or redirect it "
             "elsewhere.",
             std::generic_category().message(errno));
}

ExitCode Run(int argc, char** argv) {
  kernels::ForceTargetFromEnvironment();
  CLI::App app(
      "isoloss verifies numerical convergence: does a precision change alter "
      "training?",
      "isoloss");
  app.set_version_flag("--version", VersionText);
  app.require_subcommand(1);
  app.footer(kExitCodeHelp);
  app.failure_message(UsageMessage);
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
    return app.exit(error) == 0 ? ExitCode::kPass : ExitCode::kUsage;
  }
  return chosen();
}

/// Says why the program ends. Where other processes wait for this one, the
/// whole job ends, with `job_code`.
int Fail(ExitCode code, const std::string& message, int job_code) {
  const transport::Launch launch = transport::DetectLaunch();
  if (launch.processes > 1) {
    fmt::print(stderr, "isoloss, process {} of {}: {}\n", launch.process,
               launch.processes, message);
  } else {
    fmt::print(stderr, "isoloss: {}\n", message);
  }
  if (transport::JobHasPeers()) transport::EndJob(message, job_code);
  return static_cast<int>(code);
}

int Fail(ExitCode code, const std::string& message) {
  return Fail(code, message, static_cast<int>(code));
}

}  // namespace
}  // namespace isoloss::cli

int main(int argc, char** argv) {
  using isoloss::cli::ExitCode;
  // A file that grows beyond the limit is an error of `write`, not a death.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const ExitCode code = isoloss::cli::Run(argc, argv);
    isoloss::cli::FlushStandardOutput();
    return static_cast<int>(code);
  } catch (const isoloss::Error& error) {
    // Ranks that lose each other, or whose rows change on the way, are no
    // mistake of the caller's.
    if (error.kind() == isoloss::ErrorKind::kTransport) {
      return isoloss::cli::Fail(ExitCode::kInternal, error.what(),
                                isoloss::transport::kStartAgain);
    }
    return isoloss::cli::Fail(ExitCode::kInvalid, error.what());
  } catch (const std::system_error& error) {
    return isoloss::cli::Fail(
        ExitCode::kInvalid,
        fmt::format("the system refused an operation: {}", error.what()));
  } catch (const std::bad_alloc&) {
    return isoloss::cli::Fail(ExitCode::kInvalid,
                              "out of memory. Lower the sizes of the "
                              "experiment or parallel.workers.");
  } catch (const std::exception& error) {
    return isoloss::cli::Fail(ExitCode::kInternal,
                              fmt::format("internal error: {}", error.what()));
  }
}
