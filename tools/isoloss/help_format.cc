// What help looks like: UseHelpFormat and CommandLines of usage.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

#include "isoloss/report/terminal_width.h"
#include "usage.h"

namespace isoloss::cli {
namespace {

constexpr size_t kWidthOfFiles = 80;
/// Below this even an option's name does not fit.
constexpr size_t kNarrowest = 40;
/// Where descriptions begin.
constexpr size_t kColumn = 28;
/// On narrower terminals they begin below the name.
constexpr size_t kSideBySide = 72;
constexpr size_t kIndent = 6;

size_t Width() {
  const auto width = report::TerminalWidth();
  return width ? std::max(kNarrowest, static_cast<size_t>(*width))
               : kWidthOfFiles;
}

/// `text` in lines of at most `width` columns; words that are longer stay
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

/// Fills each line of `text` by itself; what does not fit stands below its
/// line's own indentation.
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

/// The description begins beside `name`, or below if there is no room.
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

/// Type and rule, "INT:1 to 9" or "TEXT:a|b", which CLI11 keeps in one string.
struct ValueText {
  explicit ValueText(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const size_t colon = type.find(':');
    name = type.substr(0, colon);
    if (colon == std::string::npos) return;
    rule = type.substr(colon + 1);
    if (rule.find('|') == std::string::npos) return;
    name = std::exchange(rule, "");
  }
  std::string name;
  std::string rule;
};

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option,
                          bool is_positional) const override {
    std::string name = make_option_name(option, is_positional);
    std::string text = option->get_description();
    if (option->get_items_expected_max() != 0) {  // no flag
      const ValueText value(*option);
      if (!is_positional) name += " " + value.name;
      if (!value.rule.empty()) text += fmt::format(" [{}]", value.rule);
      if (!option->get_default_str().empty()) {
        text += fmt::format(" (default: {})", option->get_default_str());
      }
    }
    if (option->get_required() && !is_positional) text += " (required)";
    AppendOthers(text, "only with", option->get_needs());
    AppendOthers(text, "not with", option->get_excludes());
    return Entry(name, text);
  }
  std::string make_subcommand(const CLI::App* sub) const override {
    const std::string text = sub->get_description();
    return Entry(sub->get_name(), text.substr(0, text.find(". ")));
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return Wrapped(CLI::Formatter::make_usage(app, name), Width(), 0);
  }
  std::string make_description(const CLI::App* app) const override {
    return Wrapped(app->get_description(), Width(), 0);
  }
  std::string make_footer(const CLI::App* app) const override {
    return Wrapped(app->get_footer(), Width(), 0);
  }

 private:
  static void AppendOthers(std::string& text, const char* how,
                           const std::set<CLI::Option*>& others) {
    std::vector<std::string> names;
    for (const CLI::Option* other : others) names.push_back(other->get_name());
    std::ranges::sort(names);  // not by their addresses
    if (!names.empty()) {
      text += fmt::format(" ({} {})", how, fmt::join(names, ", "));
    }
  }
};

}  // namespace

std::string CommandLines(std::string command) {
  // What stands between quotes is one word.
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

void UseHelpFormat(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormat>());
}

}  // namespace isoloss::cli
