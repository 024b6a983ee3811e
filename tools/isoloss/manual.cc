// isoloss lab manual: manual pages of all commands.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "commands.h"
#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/campaign/output_file.h"
#include "man_page.h"
#include "value_words.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

struct ManualArguments {
  std::vector<std::string> command;
  fs::path out;
};

const CommandEntry& NamedCommand(const CommandEntry& program,
                                 std::vector<std::string> words) {
  const std::string above = words.empty() ? "" : NameAbove(words.front());
  if (!above.empty()) words.insert(words.begin(), above);
  const std::string name = fmt::format("{}", fmt::join(words, " "));
  std::vector<std::string> known;
  for (const CommandEntry* command : AllCommands(program)) {
    if (command->Name() == name) return *command;
    if (command != &program) known.push_back(command->Name());
  }
  ThrowError(ErrorKind::kConfig,
             "manual: `{}` is no command of isoloss. Commands: {}.{}",
             ShownValue(name), fmt::join(known, ", "), DidYouMean(name, known));
}

void MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    ThrowError(ErrorKind::kIo,
               "{}: can't create the folder: {}. Give another --out.",
               folder.string(), error.message());
  }
}

ExitCode Manual(const ManualArguments& arguments) {
  const CommandEntry program = ProgramTree();
  if (arguments.out.empty()) {
    fmt::print("{}",
               ManPage(program, NamedCommand(program, arguments.command)));
    return ExitCode::kPass;
  }
  MakeFolder(arguments.out);
  for (const CommandEntry* command : AllCommands(program)) {
    const fs::path file = arguments.out / (PageName(*command) + ".1");
    const std::string page = ManPage(program, *command);
    campaign::CheckOutput(file, {}, "page of `isoloss lab manual`",
                          campaign::HasFirstLineOf(page));
    WriteFileAtomically(file, page);
  }
  return ExitCode::kPass;
}

Action DeclareManual(CLI::App& app) {
  auto arguments = std::make_shared<ManualArguments>();
  AddOption(app, "command", arguments->command,
            "The command whose page is printed, such as `golden check`; "
            "without it the program's")
      .TypeName(kCommandName);
  AddOption(app, "--out", arguments->out,
            "Write the pages of all commands to this folder, "
            "isoloss-COMMAND.1 each, and print none")
      .TypeName(kFolder)
      .Excludes("command");
  Describe(app,
           "Print the manual page of a command, in roff, or write all of "
           "them. The Debian package installs them. Without that, `isoloss "
           "lab manual verify | man -l -` shows one");
  return [arguments] { return Manual(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_manual = {
    "manual", "Print or write manual pages", "isoloss lab manual verify",
    &DeclareManual};

}  // namespace isoloss::cli
