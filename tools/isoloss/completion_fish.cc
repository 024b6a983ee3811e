// The completion for fish: a line for each option of each command.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "completions.h"
#include "value_words.h"

namespace isoloss::cli {
namespace {

// Which command a line has so far: options and what follows them are left out,
// as no option stands before a command's name.
constexpr const char* kFishHead =
    R"(# Completion of isoloss for fish, as `isoloss lab completion fish` prints it.

function __isoloss_at
    set -l command
    for word in (commandline -opc)[2..-1]
        string match -q -- '-*' $word; and break
        contains -- "$command$word" $__isoloss_commands; or break
        set command "$command$word "
    end
    test (string trim -- "$command") = "$argv"
end

complete -c isoloss -f
)";

/// In spite of `complete -c isoloss -f`; not together with -x.
constexpr const char* kAnyFileOffered = " -F";

/// Between single quotes.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

/// Options of `complete` that offer the values.
std::string ValuesOf(const OptionEntry& option) {
  const ValueWords words = WordsFor(option);
  switch (words.kind) {
    case ValueWords::Kind::kNothing:
      return "";
    case ValueWords::Kind::kFolders:
      return " -a '(__fish_complete_directories (commandline -ct))'";
    case ValueWords::Kind::kFiles: {
      if (words.patterns.empty()) return kAnyFileOffered;
      std::string offered;
      for (const std::string& pattern : words.patterns) {
        offered += fmt::format(" -a '(__fish_complete_suffix {})'",
                               pattern.substr(1));  // ".toml" of "*.toml"
      }
      return offered;
    }
    case ValueWords::Kind::kWords:
      break;
  }
  return fmt::format(" -a {}",
                     Quoted(fmt::format("{}", fmt::join(words.words, " "))));
}

std::string OptionLine(const std::string& condition,
                       const OptionEntry& option) {
  std::string line = "complete -c isoloss" + condition;
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2)
                                   : " -s " + name.substr(1);
  }
  if (option.most_values > 0) {
    const std::string values = ValuesOf(option);
    line += (values == kAnyFileOffered ? " -r" : " -x") + values;
  }
  return fmt::format("{} -d {}\n", line, Quoted(InOneLine(option.text)));
}

std::string LinesOf(const CommandEntry& command) {
  const std::string condition = fmt::format(
      " -n {}", Quoted(fmt::format("__isoloss_at {}", Quoted(command.Name()))));
  std::string lines = "\n";
  for (const CommandEntry& sub : command.commands) {
    lines += fmt::format("complete -c isoloss{} -a {} -d {}\n", condition,
                         sub.words.back(), Quoted(sub.summary));
  }
  for (const OptionEntry& argument : command.arguments) {
    const std::string values = ValuesOf(argument);
    if (values.empty()) continue;
    lines += fmt::format("complete -c isoloss{}{}\n", condition, values);
  }
  for (const OptionEntry& option : command.options) {
    lines += OptionLine(condition, option);
  }
  return lines;
}

}  // namespace

std::string FishCompletion(const CommandEntry& program) {
  std::string names;
  std::string lines;
  for (const CommandEntry* command : AllCommands(program)) {
    if (command != &program) names += " " + Quoted(command->Name());
    lines += LinesOf(*command);
  }
  return fmt::format("{}set -g __isoloss_commands{}\n{}", kFishHead, names,
                     lines);
}

}  // namespace isoloss::cli
