// What the program takes, as plain data: for completions and manual pages.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace isoloss::cli {

/// Type and rule of a value, which CLI11 keeps in one string: "INT:1 to 9",
/// "TEXT:a|b".
struct ValueText {
  explicit ValueText(const CLI::Option& option);

  std::string name;  ///< "INT", "FOLDER", or choices such as "a|b"
  std::string rule;  ///< "1 to 9", or ""
  /// Of "a|b"; else empty.
  std::vector<std::string> Choices() const;
};

/// All that help says of an option: description, rule, default, which others it
/// goes with.
std::string OptionText(const CLI::Option& option, bool is_positional);

/// `text` with single spaces in place of line ends and margins: for shells.
std::string InOneLine(const std::string& text);

/// An option, or what stands without one.
struct OptionEntry {
  std::vector<std::string> names;  ///< "-h", "--help"; of an argument its name
  std::string value;               ///< "FOLDER", "csv|jsonl"; "" of a flag
  std::vector<std::string> choices = {};  ///< the only values, if there are any
  std::string text;                       ///< whole sentences or phrases
  /// How many values may follow it: 0 of a flag, kManyValues of a list.
  int most_values = 0;
  bool repeatable = false;
  bool required = false;
};
inline constexpr int kManyValues = 1'000'000;

struct CommandEntry {
  std::vector<std::string> words = {};  ///< "isoloss", "golden", "check"
  std::string summary = {};             ///< what lists of commands say of it
  std::string description = {};
  std::string example = {};  ///< a command line; "" of the program itself
  std::vector<OptionEntry> options = {};
  std::vector<OptionEntry> arguments = {};  ///< what stands without an option
  std::vector<CommandEntry> commands = {};

  /// Without the program's: "golden check"; "" of the program itself.
  std::string Name() const;
};

/// All that was declared on `app`.
CommandEntry CommandTree(const CLI::App& app);
/// That of the whole program.
CommandEntry ProgramTree();

/// `tree` and all commands below it, each before its own.
std::vector<const CommandEntry*> AllCommands(const CommandEntry& tree);

}  // namespace isoloss::cli
