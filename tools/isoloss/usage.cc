#include "usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <vector>

#include "arguments.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/printable.h"
#include "isoloss/train/experiment_keys.h"

namespace isoloss::cli {
namespace {

/// This is the innermost command that was given, and its full name.
struct GivenCommand {
  explicit GivenCommand(const CLI::App* program) : app(program) {
    while (!app->get_subcommands().empty()) {
      app = app->get_subcommands().front();
      name += " " + app->get_name();
    }
  }
  const CLI::App* app;
  std::string name = "isoloss";
};

std::vector<std::string> SubcommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub :
       app.get_subcommands([](const CLI::App* /*any*/) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

/// Returns " Did you mean ...?" with one of the commands of `app`, or one below
/// them.
std::string DidYouMeanCommand(const CLI::App& app, const std::string& given) {
  const std::vector<std::string> subs = SubcommandsOf(app);
  std::string hint = DidYouMean(given, subs);
  for (size_t i = 0; hint.empty() && i < subs.size(); ++i) {
    const std::string name =
        NearestName(given, SubcommandsOf(*app.get_subcommand(subs[i])));
    if (!name.empty())
      hint = fmt::format(" Did you mean `{} {}`?", subs[i], name);
  }
  return hint;
}

bool IsOption(const std::string& argument) {
  return argument.size() > 1 && argument.front() == '-' &&
         !(argument[1] >= '0' && argument[1] <= '9');
}

/// Finds an option by its name in CLI11's errors, which leave out the dashes of
/// flags.
const CLI::Option* OptionOf(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option_no_throw(name);
  return option != nullptr ? option : app.get_option_no_throw("--" + name);
}

bool IsFlag(const CLI::Option& option) {
  return option.get_items_expected_max() == 0;
}

/// Suggests `--set train.steps=...` for an unknown `--steps`.
std::string DidYouMeanKey(const CLI::App& app, const std::string& name) {
  if (OptionOf(app, "--set") == nullptr) return "";
  std::string wanted = name.substr(std::min(name.size(), size_t{2}));
  std::ranges::replace(wanted, '-', '_');
  const std::string key = NearestKey(wanted, train::ExperimentKeyNames());
  return key.empty() ? "" : fmt::format(" Did you mean `--set {}=...`?", key);
}

std::string UnknownOption(const GivenCommand& command,
                          const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : command.app->get_options({})) {
    for (const std::string& word : option->get_lnames()) {
      known.push_back("--" + word);
    }
  }
  // A key of exactly that name tells more than an option with a similar name.
  std::string hint = DidYouMean(name, known);
  if (hint.empty()) hint = DidYouMeanKey(*command.app, name);
  return fmt::format("`{}` is none of its options.{}", ShownValue(name), hint);
}

/// Returns words of the command line that no option took, if there are any.
std::optional<std::string> LeftOver(const GivenCommand& command) {
  const std::vector<std::string> unknown = command.app->remaining();
  if (unknown.empty()) return std::nullopt;
  const auto option = std::ranges::find_if(unknown, IsOption);
  if (option != unknown.end()) return UnknownOption(command, *option);
  const std::vector<std::string> subs = SubcommandsOf(*command.app);
  if (!subs.empty()) {
    return fmt::format("`{}` is no sub-command. Sub-commands: {}.{}",
                       ShownValue(unknown.front()), fmt::join(subs, ", "),
                       DidYouMeanCommand(*command.app, unknown.front()));
  }
  std::vector<std::string> taken;
  for (const CLI::Option* positional : command.app->get_options(
           [](const CLI::Option* any) { return any->get_positional(); })) {
    taken.push_back(positional->get_expected_max() > 1
                        ? fmt::format("{} ({})", positional->get_name(),
                                      positional->get_expected_max())
                        : positional->get_name());
  }
  return fmt::format(
      "`{}` is one argument too many: it takes {}.",
      ShownValue(unknown.front()),
      taken.empty() ? "none" : fmt::format("{}", fmt::join(taken, ", ")));
}

/// CLI11 describes a fault of an option as "name: text" or "name verb other".
struct Words {
  explicit Words(const std::string& text) {
    first = text.substr(0, text.find_first_of(": "));
    last = text.substr(text.find_last_of(' ') + 1);
    const size_t colon = text.find(": ");
    if (colon != std::string::npos) rest = text.substr(colon + 2);
  }
  std::string first, last, rest;
};

/// Returns the sentence on what is missing, an option or a sub-command.
std::string OfMissing(const GivenCommand& command, const std::string& name,
                      const CLI::Option* option) {
  const std::vector<std::string> subs = SubcommandsOf(*command.app);
  if (!subs.empty()) {
    return fmt::format("no sub-command is given. Sub-commands: {}.",
                       fmt::join(subs, ", "));
  }
  return fmt::format(
      "`{}` is missing, but it needs one: {}.", name,
      option == nullptr ? "see its help" : option->get_description());
}

/// Returns the whole sentence on the option that is at fault.
std::string OfOption(const GivenCommand& command, const CLI::Error& error) {
  const Words words(error.what());
  const std::string& kind = error.get_name();
  const CLI::Option* option = OptionOf(*command.app, words.first);
  if (kind == "RequiredError") return OfMissing(command, words.first, option);
  if (kind == "ArgumentMismatch" && option != nullptr) {
    if (IsFlag(*option)) {
      return fmt::format("`{}` is given a value, but it takes none.",
                         option->get_name());
    }
    const size_t count = option->count();
    return fmt::format("`{}` has {} value{}, but it takes {}.", words.first,
                       count, count == 1 ? "" : "s",
                       option->get_expected_min());
  }
  if (kind == "RequiresError") {
    return fmt::format(
        "`{}` is given without `{}`, but it only has a meaning with it. Give "
        "both or neither.",
        words.first, words.last);
  }
  if (kind == "ExcludesError") {
    return fmt::format(
        "`{}` and `{}` are given, but they exclude each other. Give one of "
        "them.",
        words.first, words.last);
  }
  if (kind == "ValidationError") {
    const bool ended = words.rest.ends_with('.') || words.rest.ends_with('?');
    return fmt::format("`{}` {}{}", words.first, words.rest, ended ? "" : ".");
  }
  return fmt::format("{}.", error.what());
}

}  // namespace

void RefuseFlagValues(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (IsFlag(*option)) option->disable_flag_override();
  }
  for (CLI::App* sub : app.get_subcommands({})) RefuseFlagValues(*sub);
}

std::string HelpOrUsageMessage(const CLI::App* app, const CLI::Error& error) {
  const GivenCommand command(app);
  const bool needs_command = error.get_name() == "RequiredError" &&
                             !SubcommandsOf(*command.app).empty();
  if (needs_command && !LeftOver(command)) return app->help();
  return UsageMessage(app, error);
}

std::string UsageMessage(const CLI::App* app, const CLI::Error& error) {
  const GivenCommand command(app);
  // This fault comes first, since a misspelt name is often why an argument is
  // missing.
  const std::optional<std::string> left_over = LeftOver(command);
  return fmt::format(
      "{}: {} Run `{} --help`.\n", command.name,
      Printable(left_over ? *left_over : OfOption(command, error)),
      command.name);
}

}  // namespace isoloss::cli
