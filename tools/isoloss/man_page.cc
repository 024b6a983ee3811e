#include "man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "isoloss/base/build_info.h"
#include "isoloss/campaign/exit_code.h"
#include "roff_text.h"

namespace isoloss::cli {
namespace {

struct Variable {
  const char* name;
  const char* meaning;
};
constexpr Variable kEnvironment[] = {
    {"ISOLOSS_FORCE_KERNEL",
     "Kernel target to use in place of the best one: scalar, or a vector "
     "target that `isoloss lab doctor` lists. No bit of a result depends on "
     "it."},
    {"ISOLOSS_MPI",
     "openmpi or mpich: which module of the transport mpi is loaded, in place "
     "of the launcher's."},
    {"ISOLOSS_MPI_MODULE_DIR", "Folder of these modules."},
    {"NO_COLOR", "If it is set, nothing is drawn in colour."},
};

std::string Bold(const std::string& text) {
  return "\\fB" + RoffText(text) + "\\fR";
}

std::string Italic(const std::string& text) {
  return "\\fI" + RoffText(text) + "\\fR";
}

std::string Section(const char* title) {
  return fmt::format(".SH {}\n", title);
}

/// An indented entry of a list; both texts are roff already.
std::string Tagged(const std::string& tag, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", tag, text);
}

std::string Usage(const CommandEntry& command) {
  std::string usage = Bold(fmt::format("{}", fmt::join(command.words, " ")));
  if (!command.options.empty()) usage += " [" + Italic("OPTIONS") + "]";
  for (const OptionEntry& argument : command.arguments) {
    std::string shown = Italic(argument.names.front());
    if (argument.most_values > 1) shown += " ...";
    usage += " " + (argument.required ? shown : "[" + shown + "]");
  }
  if (!command.commands.empty()) {
    usage += " " + Italic("COMMAND") + " ...";
  }
  return usage;
}

std::string OptionTag(const OptionEntry& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(Bold(name));
  std::string tag = fmt::format("{}", fmt::join(names, ", "));
  if (option.value.empty()) return tag;
  if (option.choices.empty()) return tag + " " + Italic(option.value);
  return tag + " " + RoffText(option.value);
}

/// A sentence ends with a full stop.
std::string Sentence(const std::string& text) {
  const bool ended = text.ends_with('.') || text.ends_with('?');
  return RoffText(text) + (ended ? "" : ".");
}

std::string Options(const CommandEntry& command) {
  std::string text;
  for (const OptionEntry& argument : command.arguments) {
    text += Tagged(Italic(argument.names.front()), Sentence(argument.text));
  }
  for (const OptionEntry& option : command.options) {
    text += Tagged(OptionTag(option), Sentence(option.text));
  }
  return text;
}

std::string Commands(const CommandEntry& command) {
  std::string text;
  for (const CommandEntry& sub : command.commands) {
    text += Tagged(Bold(sub.words.back()), Sentence(sub.summary));
  }
  return text;
}

std::string ExitStatus() {
  std::string text;
  for (const campaign::ExitCodeMeaning& exit : campaign::kExitCodeMeanings) {
    text += Tagged(Bold(fmt::format("{}", exit.code)), RoffText(exit.meaning));
  }
  return text;
}

std::string Environment() {
  std::string text;
  for (const Variable& variable : kEnvironment) {
    text += Tagged(Bold(variable.name), RoffText(variable.meaning));
  }
  return text;
}

/// The program's page names all; others the program's and those around it.
std::string SeeAlso(const CommandEntry& program, const CommandEntry& command) {
  std::vector<std::string> pages;
  for (const CommandEntry* other : AllCommands(program)) {
    const bool is_near =
        other == &program || &command == &program ||
        PageName(*other).starts_with(PageName(command) + "-") ||
        PageName(command).starts_with(PageName(*other) + "-");
    if (other == &command || !is_near) continue;
    pages.push_back(Bold(PageName(*other)) + "(1)");
  }
  return fmt::format("{}\n", fmt::join(pages, ",\n"));
}

}  // namespace

std::string PageName(const CommandEntry& command) {
  return fmt::format("{}", fmt::join(command.words, "-"));
}

std::string ManPage(const CommandEntry& program, const CommandEntry& command) {
  std::string title = PageName(command);
  for (char& c : title) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  std::string page = fmt::format(
      ".\\\" Written by `isoloss manual`.\n"
      ".TH {} 1 \"\" \"isoloss {}\" \"isoloss\"\n",
      RoffText(title), RoffText(GetBuildInfo().version));
  // One line without a hyphen of another kind, as whatis(1) reads it.
  page += Section("NAME") + RoffText(PageName(command)) + " \\- " +
          RoffText(command.summary) + "\n";
  page += Section("SYNOPSIS") + Usage(command) + "\n";
  page += Section("DESCRIPTION") + Sentence(command.description) + "\n";
  if (!command.commands.empty()) {
    page += Section("COMMANDS") + Commands(command);
  }
  page += Section("OPTIONS") + Options(command);
  page += Section("EXIT STATUS") + ExitStatus();
  if (&command == &program) page += Section("ENVIRONMENT") + Environment();
  if (!command.example.empty()) {
    page +=
        Section("EXAMPLE") + ".nf\n" + RoffText(command.example) + "\n.fi\n";
  }
  return page + Section("SEE ALSO") + SeeAlso(program, command);
}

}  // namespace isoloss::cli
