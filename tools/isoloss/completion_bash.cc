// The completion for bash: tables made of the commands, and a function that
// finds in a command line where the cursor is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "completions.h"
#include "value_words.h"

namespace isoloss::cli {
namespace {

constexpr const char* kBashHead =
    R"(# Completion of isoloss for bash, as `isoloss lab completion bash` prints it.
)";

// bash splits at "=", so that --option=value are three words; what follows a
// setting's "=" (--set train.steps=5) is nobody's word.
constexpr const char* kBashTail = R"(
# Folders, and files that match one of the patterns.
_isoloss_files() {
  local pattern
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(
    compgen -d -- "$1"
    for pattern in "${@:2}"; do compgen -f -X "!$pattern" -- "$1"; done)
  # Names that are quoted, or begin with ~, are left to readline.
  ((${#COMPREPLY[@]})) || compopt -o default 2>/dev/null
}

# What a value of kind $2 may be that begins with $1.
_isoloss_value() {
  local words=
  case $2 in
    '') return ;;
    folders) _isoloss_files "$1"; return ;;
    files*) local patterns; read -ra patterns <<<"${2#files}"
      _isoloss_files "$1" "${patterns[@]}"; return ;;
    words*) words=${2#words} ;;
    unfinished*) words=${2#unfinished}; compopt -o nospace 2>/dev/null ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$1")
}

_isoloss() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local command= kind= places=0 left=0 value= positionals=0 options= commands= glued= i word
  COMPREPLY=()
  _isoloss_command
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then
      [[ ${COMP_WORDS[i - 1]} == -* ]] || glued=1
    elif [[ $glued ]]; then
      glued=
    elif [[ $word == -* ]]; then
      _isoloss_option "$word"
    elif ((left > 0)); then
      ((--left))
    elif [[ " $commands " == *" $word "* ]]; then
      command+=${command:+ }$word
      _isoloss_command
    else
      ((++positionals))
    fi
  done
  if [[ $current == = ]]; then
    [[ $before == -* ]] || return 0
    current=
  fi
  if [[ $glued ]]; then return 0; fi
  if ((left > 0)) && [[ $current != -* ]]; then
    _isoloss_value "$current" "$value"
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  elif [[ $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  elif ((positionals < places)); then
    _isoloss_value "$current" "$kind"
  fi
  return 0
}

complete -F _isoloss isoloss
)";

std::string KindOf(const OptionEntry& option) {
  const ValueWords words = WordsFor(option);
  switch (words.kind) {
    case ValueWords::Kind::kNothing:
      return "";
    case ValueWords::Kind::kFolders:
      return "folders";
    case ValueWords::Kind::kFiles:
      return words.patterns.empty()
                 ? "files *"
                 : fmt::format("files {}", fmt::join(words.patterns, " "));
    case ValueWords::Kind::kWords:
      break;
  }
  return fmt::format("{} {}", words.unfinished ? "unfinished" : "words",
                     fmt::join(words.words, " "));
}

/// Of what stands without an option: the kind of the first, and how many.
std::string ArgumentsOf(const CommandEntry& command) {
  if (command.arguments.empty()) return " kind= places=0";
  int places = 0;
  for (const OptionEntry& argument : command.arguments) {
    places += argument.most_values;
  }
  return fmt::format(" kind={} places={}",
                     SingleQuoted(KindOf(command.arguments.front())), places);
}

std::string CommandLine(const CommandEntry& command) {
  std::vector<std::string> options;
  for (const OptionEntry& option : command.options) {
    options.insert(options.end(), option.names.begin(), option.names.end());
  }
  std::vector<std::string> commands;
  for (const CommandEntry& sub : command.commands) {
    commands.push_back(sub.words.back());
  }
  return fmt::format("    {}) options={} commands={}{} ;;\n",
                     SingleQuoted(command.Name()),
                     SingleQuoted(fmt::format("{}", fmt::join(options, " "))),
                     SingleQuoted(fmt::format("{}", fmt::join(commands, " "))),
                     ArgumentsOf(command));
}

std::string OptionLines(const CommandEntry& command) {
  std::string lines;
  for (const OptionEntry& option : command.options) {
    if (option.most_values == 0) continue;
    std::vector<std::string> names;
    for (const std::string& name : option.names) {
      names.push_back(SingleQuoted(command.Name() + " " + name));
    }
    lines +=
        fmt::format("    {}) left={} value={} ;;\n", fmt::join(names, " | "),
                    option.most_values, SingleQuoted(KindOf(option)));
  }
  return lines;
}

}  // namespace

std::string SingleQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string BashCompletion(const CommandEntry& program) {
  std::string commands;
  std::string options;
  for (const CommandEntry* command : AllCommands(program)) {
    commands += CommandLine(*command);
    options += OptionLines(*command);
  }
  return fmt::format(
      "{}\n"
      "# What `command` takes.\n"
      "_isoloss_command() {{\n  case $command in\n{}  esac\n}}\n\n"
      "# How many values option $1 of `command` takes, and of which kind.\n"
      "_isoloss_option() {{\n  left=0 value=\n  case \"$command $1\" in\n{}"
      "  esac\n}}\n{}",
      kBashHead, commands, options, kBashTail);
}

}  // namespace isoloss::cli
