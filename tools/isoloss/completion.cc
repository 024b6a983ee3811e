// isoloss lab completion: what makes a shell complete isoloss' command lines.

#include <fmt/format.h>

#include <memory>
#include <string>

#include "commands.h"
#include "completions.h"

namespace isoloss::cli {
namespace {

ExitCode Print(const std::string& shell) {
  const CommandEntry program = ProgramTree();
  fmt::print("{}", shell == "bash"  ? BashCompletion(program)
                   : shell == "zsh" ? ZshCompletion(program)
                                    : FishCompletion(program));
  return ExitCode::kPass;
}

Action DeclareCompletion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  AddOption(app, "shell", *shell, "bash, zsh or fish")
      .Required()
      .OneOf({"bash", "zsh", "fish"});
  Describe(app,
           "Print the script that makes a shell complete command lines of "
           "isoloss: commands, options, files, recipes and keys. The Debian "
           "package installs it. Without that: in bash `source <(isoloss "
           "lab completion bash)`, in fish `isoloss lab completion fish | "
           "source`, in "
           "zsh `source <(isoloss lab completion zsh)` after compinit");
  return [shell] { return Print(*shell); };
}

}  // namespace

extern constinit const Command kCommand_completion = {
    "completion", "Print what completes command lines in a shell",
    "isoloss lab completion bash", &DeclareCompletion};

}  // namespace isoloss::cli
