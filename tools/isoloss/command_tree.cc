#include "command_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "commands.h"
#include "usage.h"

namespace isoloss::cli {
namespace {

void AppendOthers(std::string& text, const char* how,
                  const std::set<CLI::Option*>& others) {
  std::vector<std::string> names;
  for (const CLI::Option* other : others) {
    const bool hidden = other->get_group().empty();
    if (!hidden) names.push_back(other->get_name());
  }
  std::ranges::sort(names);  // not by their addresses
  if (!names.empty()) {
    text += fmt::format(" ({} {})", how, fmt::join(names, ", "));
  }
}

OptionEntry EntryOf(const CLI::Option& option) {
  const bool is_argument = option.get_positional();
  OptionEntry entry{
      .names = {}, .value = "", .text = OptionText(option, is_argument)};
  if (is_argument) entry.names.push_back(option.get_name(true));
  for (const std::string& name : option.get_snames()) {
    entry.names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    entry.names.push_back("--" + name);
  }
  entry.required = option.get_required();
  if (option.get_items_expected_max() == 0) return entry;
  const ValueText value(option);
  entry.value = value.name;
  entry.choices = value.Choices();
  const bool list = option.get_items_expected_max() > 1;
  entry.repeatable = list;
  entry.most_values = list && option.get_allow_extra_args() ? kManyValues : 1;
  if (is_argument && list) {
    entry.most_values = std::min(option.get_items_expected_max(), kManyValues);
  }
  return entry;
}

CommandEntry EntryOf(const CLI::App& app, std::vector<std::string> words) {
  words.push_back(app.get_name());
  CommandEntry entry{.words = std::move(words)};
  entry.description = app.get_description();
  entry.summary = SummaryOf(app);
  if (entry.summary.empty()) entry.summary = FirstSentence(entry.description);
  entry.example = ExampleOf(app);
  for (const CLI::Option* option : app.get_options(
           [](const CLI::Option* any) { return !any->get_group().empty(); })) {
    auto& list = option->get_positional() ? entry.arguments : entry.options;
    list.push_back(EntryOf(*option));
  }
  for (const CLI::App* sub :
       app.get_subcommands([](const CLI::App* /*any*/) { return true; })) {
    entry.commands.push_back(EntryOf(*sub, entry.words));
  }
  return entry;
}

void Collect(const CommandEntry& tree, std::vector<const CommandEntry*>& all) {
  all.push_back(&tree);
  for (const CommandEntry& command : tree.commands) Collect(command, all);
}

}  // namespace

ValueText::ValueText(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  name = type.substr(0, colon);
  if (colon == std::string::npos) return;
  rule = type.substr(colon + 1);
  if (rule.find('|') == std::string::npos) return;
  name = std::exchange(rule, "");
}

std::vector<std::string> ValueText::Choices() const {
  std::vector<std::string> choices;
  if (name.find('|') == std::string::npos) return choices;
  std::istringstream words(name);
  for (std::string word; std::getline(words, word, '|');) {
    choices.push_back(word);
  }
  return choices;
}

std::string OptionText(const CLI::Option& option, bool is_positional) {
  std::string text = option.get_description();
  if (option.get_items_expected_max() != 0) {  // no flag
    const ValueText value(option);
    if (!value.rule.empty()) text += fmt::format(" [{}]", value.rule);
    if (!option.get_default_str().empty()) {
      text += fmt::format(" (default: {})", option.get_default_str());
    }
  }
  if (option.get_required() && !is_positional) text += " (required)";
  AppendOthers(text, "only with", option.get_needs());
  AppendOthers(text, "not with", option.get_excludes());
  return text;
}

std::string InOneLine(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) {
    line += (line.empty() ? "" : " ") + word;
  }
  return line;
}

std::string CommandEntry::Name() const {
  return fmt::format("{}", fmt::join(words.begin() + 1, words.end(), " "));
}

CommandEntry CommandTree(const CLI::App& app) { return EntryOf(app, {}); }

CommandEntry ProgramTree() {
  CLI::App app;
  DeclareProgram(app);
  return CommandTree(app);
}

std::vector<const CommandEntry*> AllCommands(const CommandEntry& tree) {
  std::vector<const CommandEntry*> all;
  Collect(tree, all);
  return all;
}

}  // namespace isoloss::cli
