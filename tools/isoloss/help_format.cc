// Writes the help as UseHelpFormat of usage.h promises, and the footers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/report/terminal_width.h"
#include "isoloss/system/exit_code.h"
#include "usage.h"

namespace isoloss::cli {
namespace {

constexpr size_t kWidthOfFiles = 80;
/// An option's name does not fit into fewer columns.
constexpr size_t kNarrowest = 40;
constexpr std::string_view kExampleHeading = "\nExample:\n  ";
/// Descriptions begin in this column.
constexpr size_t kColumn = 28;
/// On narrower terminals descriptions begin below the name.
constexpr size_t kSideBySide = 72;
constexpr size_t kIndent = 6;

/// CLI11 keeps type and rule of a value in one string, such as "INT:1 to 9" or
/// "TEXT:a|b".
struct ValueText {
  explicit ValueText(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const size_t colon = type.find(':');
    name = type.substr(0, colon);
    if (colon == std::string::npos) return;
    rule = type.substr(colon + 1);
    if (rule.find('|') != std::string::npos) name = std::exchange(rule, "");
  }

  std::string name;  ///< "INT", "FOLDER", or choices such as "a|b"
  std::string rule;  ///< "1 to 9", or ""
};

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

/// Returns all that help says of an option: description, rule, default and the
/// options that it goes with.
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

size_t Width() {
  const auto width = report::TerminalWidth();
  return width ? std::max(kNarrowest, static_cast<size_t>(*width))
               : kWidthOfFiles;
}

/// Breaks `text` into lines of at most `width` columns; longer words stay
/// whole. `glue` ends each line but the last.
std::vector<std::string> Filled(const std::string& text, size_t width,
                                const std::string& glue = "") {
  std::vector<std::string> lines;
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() + glue.size() > width) {
      lines.push_back(line + glue);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  lines.push_back(line);
  return lines;
}

/// Fills each line of `text` by itself. Its further lines keep its own
/// indentation.
std::string Wrapped(const std::string& text, size_t width, size_t indent) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t own = std::min(line.find_first_not_of(' '), line.size());
    const std::string margin(indent + own, ' ');
    const auto filled = Filled(line, width - std::min(width, margin.size()));
    for (const std::string& part : filled) {
      if (!part.empty()) result += margin + part;
      result += '\n';
    }
  }
  return result;
}

/// The description begins beside `name`, or below it if there is no room.
std::string Entry(const std::string& name, const std::string& description) {
  const size_t width = Width();
  const std::string left = "  " + name;
  const bool beside = width >= kSideBySide;
  const std::string text =
      Wrapped(description, width, beside ? kColumn : kIndent);
  if (!beside || left.size() + 2 > kColumn || text.empty()) {
    return left + '\n' + text;
  }
  return left + text.substr(left.size());
}

/// Breaks a command line for the help so that a shell reads the lines as one
/// command.
std::string CommandLines(std::string command) {
  // Text between quotes is one word.
  constexpr char kSpace = '\1';
  bool quoted = false;
  for (char& c : command) {
    if (c == '\'') quoted = !quoted;
    if (c == ' ' && quoted) c = kSpace;
  }
  std::string text = fmt::format(
      "{}", fmt::join(Filled(command, Width() - 4, " \\"), "\n    "));
  std::ranges::replace(text, kSpace, ' ');
  return text;
}

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option,
                          bool is_positional) const override {
    std::string name = make_option_name(option, is_positional);
    if (option->get_items_expected_max() != 0 && !is_positional) {
      name += " " + ValueText(*option).name;
    }
    return Entry(name, OptionText(*option, is_positional));
  }
  std::string make_subcommand(const CLI::App* sub) const override {
    return Entry(sub->get_name(), SummaryOf(*sub));
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return Wrapped(CLI::Formatter::make_usage(app, name), Width(), 0);
  }
  std::string make_description(const CLI::App* app) const override {
    return Wrapped(app->get_description(), Width(), 0);
  }
  std::string make_footer(const CLI::App* app) const override {
    const std::string example = ExampleOf(*app);
    if (example.empty()) return Wrapped(app->get_footer(), Width(), 0);
    const size_t shown = Footer(SummaryOf(*app), example).size();
    return fmt::format("{}{}\n{}", kExampleHeading.substr(1),
                       CommandLines(example),
                       Wrapped(app->get_footer().substr(shown), Width(), 0));
  }
};

}  // namespace

std::string Footer(const std::string& summary, const std::string& example) {
  return fmt::format("{}{}{}\n", summary, kExampleHeading, example);
}

std::string SummaryOf(const CLI::App& app) {
  const std::string footer = app.get_footer();
  const size_t heading = footer.find(kExampleHeading);
  return heading == footer.npos ? "" : footer.substr(0, heading);
}

std::string ExampleOf(const CLI::App& app) {
  const std::string footer = app.get_footer();
  const size_t heading = footer.find(kExampleHeading);
  if (heading == footer.npos) return "";
  const size_t begin = heading + kExampleHeading.size();
  return footer.substr(begin, footer.find('\n', begin) - begin);
}

std::string ExitCodeHelp() {
  constexpr size_t kWidth = 72;
  std::string text = "Exit codes: ";
  const std::string margin(text.size(), ' ');
  size_t column = text.size();
  for (const system::ExitCodeMeaning& exit : system::kExitCodeMeanings) {
    const bool last = &exit == std::end(system::kExitCodeMeanings) - 1;
    const std::string item =
        fmt::format("{} {}{}", exit.code, exit.meaning, last ? "" : ",");
    if (column + 1 + item.size() > kWidth) {
      text += "\n" + margin;
      column = margin.size();
    } else if (column > margin.size()) {
      text += ' ';
      ++column;
    }
    text += item;
    column += item.size();
  }
  return text;
}

void UseHelpFormat(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormat>());
}

}  // namespace isoloss::cli
