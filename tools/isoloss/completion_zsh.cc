// The completion for zsh: a function for each command, of what _arguments
// takes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "completions.h"
#include "value_words.h"

namespace isoloss::cli {
namespace {

/// In an argument of _arguments, "[text]" and ":text:".
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string ActionOf(const OptionEntry& option) {
  const ValueWords words = WordsFor(option);
  switch (words.kind) {
    case ValueWords::Kind::kNothing:
      return " ";
    case ValueWords::Kind::kFolders:
      return "_files -/";
    case ValueWords::Kind::kFiles:
      return words.patterns.empty()
                 ? "_files"
                 : fmt::format("_files -g \"{}\"",
                               fmt::join(words.patterns, " "));
    case ValueWords::Kind::kWords:
      break;
  }
  if (words.unfinished) {
    return fmt::format("compadd -S \"\" - {}", fmt::join(words.words, " "));
  }
  return fmt::format("({})", fmt::join(words.words, " "));
}

/// One of each name, as _arguments wants them.
std::string OptionLines(const OptionEntry& option) {
  std::string lines;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    std::string spec = option.repeatable ? "*" : "";
    spec += name;
    if (option.most_values > 0 && is_long) spec += "=";
    spec += fmt::format("[{}]", Escaped(InOneLine(option.text)));
    if (option.most_values > 0) {
      // Of a list: all words up to the next option.
      spec += fmt::format(":{}{}:{}", option.most_values > 1 ? "*-*:" : "",
                          Escaped(option.value), ActionOf(option));
    }
    lines += fmt::format(" \\\n    {}", SingleQuoted(spec));
  }
  return lines;
}

std::string ArgumentLine(const OptionEntry& argument) {
  return fmt::format(" \\\n    {}",
                     SingleQuoted(fmt::format(
                         "{}:{}:{}", argument.most_values > 1 ? "*" : "",
                         Escaped(argument.names.front()), ActionOf(argument))));
}

std::string FunctionName(const CommandEntry& command) {
  return fmt::format("_{}", fmt::join(command.words, "_"));
}

std::string CommandWords(const CommandEntry& command) {
  std::string words;
  for (const CommandEntry& sub : command.commands) {
    words += fmt::format("    {}\n", SingleQuoted(sub.words.back() + ":" +
                                                  Escaped(sub.summary)));
  }
  return words;
}

std::string FunctionOf(const CommandEntry& command) {
  std::string options;
  for (const OptionEntry& option : command.options) {
    options += OptionLines(option);
  }
  if (command.commands.empty()) {
    for (const OptionEntry& argument : command.arguments) {
      options += ArgumentLine(argument);
    }
    return fmt::format("{}() {{\n  _arguments{}\n}}\n\n", FunctionName(command),
                       options);
  }
  return fmt::format(
      "{0}() {{\n"
      "  local context state state_descr line ret=1\n"
      "  typeset -A opt_args\n"
      "  local -a commands=(\n{1}  )\n"
      "  _arguments -C{2} \\\n    '1: :->command' '*:: :->arguments' && ret=0\n"
      "  case $state in\n"
      "    command) _describe -t commands command commands && ret=0 ;;\n"
      "    arguments) (( $+functions[{0}_$words[1]] )) && {0}_$words[1] && "
      "ret=0 ;;\n"
      "  esac\n"
      "  return ret\n}}\n\n",
      FunctionName(command), CommandWords(command), options);
}

}  // namespace

std::string ZshCompletion(const CommandEntry& program) {
  std::string text =
      "#compdef isoloss\n"
      "# Completion of isoloss for zsh, as `isoloss lab completion zsh` prints "
      "it.\n\n";
  for (const CommandEntry* command : AllCommands(program)) {
    text += FunctionOf(*command);
  }
  return text +
         "# Read by compinit as the function itself, or sourced.\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
         "  _isoloss \"$@\"\n"
         "else\n"
         "  compdef _isoloss isoloss\n"
         "fi\n";
}

}  // namespace isoloss::cli
