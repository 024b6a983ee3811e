// Parses the command line, runs one sub-command, and turns errors into messages
// and exit codes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iterator>
#include <map>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "ci_arguments.h"
#include "commands.h"
#include "experiment_arguments.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/system/exit_code.h"
#include "isoloss/transport/launch.h"
#include "json_output.h"
#include "study.h"
#include "usage.h"

namespace isoloss::cli {

#define ISOLOSS_GROUP(title, above)
#define ISOLOSS_COMMAND(name) extern const Command kCommand_##name;
#include "commands.def"
#undef ISOLOSS_COMMAND
#undef ISOLOSS_GROUP

Action DeclareCommands(CLI::App& app, std::span<const Command> commands) {
  app.require_subcommand(1);
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : commands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->footer(fmt::format("{}\n{}", Footer(command.summary, command.example),
                            ExitCodeHelp()));
    actions.emplace(sub, command.declare(*sub));
  }
  return
      [&app, actions] { return actions.at(app.get_subcommands().front())(); };
}

namespace {

struct Group {
  const char* title;
  std::string_view above;  ///< the command that they stand below, or ""
  std::vector<Command> commands = {};
};

std::vector<Group> Groups() {
  std::vector<Group> groups;
#define ISOLOSS_GROUP(title, above) groups.push_back({title, above});
#define ISOLOSS_COMMAND(name) groups.back().commands.push_back(kCommand_##name);
#include "commands.def"
#undef ISOLOSS_COMMAND
#undef ISOLOSS_GROUP
  std::ranges::find(groups, "study", &Group::above)->commands = StudyCommands();
  return groups;
}

Action DeclareBelow(CLI::App& app) {
  const std::vector<Group> groups = Groups();
  return DeclareCommands(
      app, std::ranges::find(groups, app.get_name(), &Group::above)->commands);
}

constexpr Command kAbove[] = {
    {"study", "Many runs: model sizes, stress, layers, claims",
     "isoloss study ladder experiments/demo/experiment.toml --dry-run",
     &DeclareBelow},
    {"lab", "Export, recipes, formats, machines",
     "isoloss lab recipes mxfp8_rceil", &DeclareBelow}};

/// Returns the commands that the program's help names in the part `group`.
std::vector<Command> CommandsAtTop(const Group& group) {
  if (group.above.empty()) return group.commands;
  return {*std::ranges::find(kAbove, group.above, &Command::name)};
}

std::string VersionText() {
  const BuildInfo build = GetBuildInfo();
  return fmt::format("isoloss {} ({}, {}, kernels: {})", build.version,
                     build.commit, build.compiler, kernels::ActiveTarget());
}

}  // namespace

Action DeclareProgram(CLI::App& app) {
  app.name("isoloss");
  app.description(
      "isoloss verifies numerical convergence: does a precision change alter "
      "training?");
  app.set_version_flag("--version", VersionText);
  app.footer(ExitCodeHelp());
  UseHelpFormat(app);
  app.failure_message(HelpOrUsageMessage);
  std::vector<Command> commands;
  for (const Group& group : Groups()) {
    std::ranges::copy(CommandsAtTop(group), std::back_inserter(commands));
  }
  Action chosen = DeclareCommands(app, commands);
  for (const Group& group : Groups()) {
    for (const Command& command : CommandsAtTop(group)) {
      app.get_subcommand(command.name)->group(group.title);
    }
  }
  RefuseFlagValues(app);
  return chosen;
}

std::string NameAbove(std::string_view command) {
  for (const Group& group : Groups()) {
    const bool is_in =
        std::ranges::count(group.commands, command, &Command::name) != 0;
    if (is_in) return std::string(group.above);
  }
  return "";
}

namespace {

/// Text that could not be written is a failed file operation, not a success.
void FlushStandardOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  ThrowError(ErrorKind::kIo,
             "standard output: can't be written: {}. Make room or redirect it "
             "elsewhere.",
             std::generic_category().message(errno));
}

/// Returns the words of a command line. A command that has moved below another
/// one is found by its former name: `isoloss ladder` is `isoloss study ladder`.
/// And `isoloss help run` is `isoloss run --help`.
std::vector<std::string> GivenWords(std::span<char*> given) {
  std::vector<std::string> words(given.begin(), given.end());
  if (words.size() < 2) return words;
  const bool asks = words[1] == "help";
  if (asks) words.erase(words.begin() + 1);
  const std::string above = words.size() > 1 ? NameAbove(words[1]) : "";
  if (!above.empty()) words.insert(words.begin() + 1, above);
  if (asks) words.emplace_back("--help");
  return words;
}

ExitCode Run(int argc, char** argv) {
  kernels::ForceTargetFromEnvironment();
  CLI::App app;
  const Action chosen = DeclareProgram(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return ExitCode::kPass;
    std::string message = UsageMessage(&app, error);
    message.pop_back();  // its line end
    ReportErrorToCi(argc, argv, "usage", message, ExitCode::kUsage);
    if (AsksForJson(argc, argv)) {
      PrintJsonError("usage", message, ExitCode::kUsage);
    }
    return ExitCode::kUsage;
  }
  const ExitCode code = chosen();
  if (code == ExitCode::kInterrupted && campaign::SpeaksForTheJob()) {
    const char* message = "A signal ended it before a result.";
    ReportErrorToCi(argc, argv, "interrupted", message, code);
    if (AsksForJson(argc, argv)) PrintJsonError("interrupted", message, code);
  }
  return code;
}

/// Says why the program ends.
struct Failure {
  ExitCode code;
  const char* kind;  ///< in JSON
  std::string message;
  int job_code;  ///< with which the whole job ends
};

/// Returns the failure of the exception that is being handled.
Failure FailureOf() {
  const auto failure = [](ExitCode code, const char* kind,
                          const std::string& message) {
    return Failure{code, kind, message, static_cast<int>(code)};
  };
  try {
    throw;
  } catch (const Error& error) {
    const char* kind = ErrorKindName(error.kind());
    // A run goes on from its checkpoint, on another GPU if need be.
    if (error.kind() == ErrorKind::kDevice) {
      return failure(static_cast<ExitCode>(transport::kStartAgain), kind,
                     error.what());
    }
    // The caller is not to blame for ranks that lose each other, or whose rows
    // change on the way.
    if (error.kind() == ErrorKind::kTransport) {
      return {ExitCode::kInternal, kind, error.what(), transport::kStartAgain};
    }
    return failure(ExitCode::kInvalid, kind, error.what());
  } catch (const std::system_error& error) {
    return failure(
        ExitCode::kInvalid, "system",
        fmt::format("the system refused an operation: {}", error.what()));
  } catch (const std::bad_alloc&) {
    return failure(ExitCode::kInvalid, "memory",
                   "out of memory. Lower the sizes of the experiment or "
                   "parallel.workers.");
  } catch (const std::exception& error) {
    return failure(ExitCode::kInternal, "internal",
                   fmt::format("internal error: {}", error.what()));
  }
}

/// Says why the program ends, in each format that the command line asks for. If
/// other processes wait for this one, the whole job ends.
int Fail(Failure failure, int argc, char** argv) {
  // The message may hold bytes of file names and files.
  failure.message = PrintableMessage(failure.message);
  const transport::Launch launch = transport::DetectLaunch();
  const std::string who = launch.processes > 1
                              ? fmt::format("isoloss, process {} of {}",
                                            launch.process, launch.processes)
                              : "isoloss";
  // fmt::print would throw if standard error can't be written, and lose the
  // code.
  std::fputs(fmt::format("{}: {}\n", who, failure.message).c_str(), stderr);
  ReportErrorToCi(argc, argv, failure.kind, failure.message, failure.code);
  if (AsksForJson(argc, argv) && launch.process == 0) {
    PrintJsonError(failure.kind, failure.message, failure.code);
    std::fflush(stdout);
  }
  if (transport::JobHasPeers()) {
    transport::EndJob(failure.message, failure.job_code);
  }
  return static_cast<int>(failure.code);
}

}  // namespace
}  // namespace isoloss::cli

int main(int given, char** words_given) {
  using isoloss::cli::ExitCode;
  std::vector<std::string> words =
      isoloss::cli::GivenWords({words_given, static_cast<size_t>(given)});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  const int argc = static_cast<int>(pointers.size());
  char** argv = pointers.data();
  // A file that grows beyond the limit is an error of `write`, not a death.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const ExitCode code = isoloss::cli::Run(argc, argv);
    // If closing the terminal ended the work, standard output takes no text,
    // which is no new error.
    if (code != ExitCode::kInterrupted) isoloss::cli::FlushStandardOutput();
    return static_cast<int>(code);
  } catch (...) {
    return isoloss::cli::Fail(isoloss::cli::FailureOf(), argc, argv);
  }
}
