// isoloss mutants: the known bugs that can be planted in a run.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/mutants/mutant.h"
#include "json_output.h"
#include "mutants_command.h"
#include "usage.h"

namespace isoloss::cli {
namespace {

struct ListArguments {
  std::string group;
  bool json = false;
};

/// Those of `group`; all if it is empty.
std::vector<mutants::Mutant> Chosen(const std::string& group) {
  std::vector<mutants::Mutant> chosen;
  std::vector<std::string> groups;
  for (const mutants::Mutant& mutant : mutants::AllMutants()) {
    if (groups.empty() || groups.back() != mutant.group) {
      groups.push_back(mutant.group);
    }
    if (group.empty() || mutant.group == group) chosen.push_back(mutant);
  }
  if (chosen.empty()) {
    ThrowError(ErrorKind::kConfig,
               "--group: `{}` is none of the groups {}. Use one of these.{}",
               group, fmt::join(groups, ", "), DidYouMean(group, groups));
  }
  return chosen;
}

Json ToJson(const mutants::Mutant& mutant) {
  Json json{{"name", mutant.name}, {"group", mutant.group}};
  json["class"] = mutants::ClassName(mutant.kind);
  if (mutant.catalogue > 0) {
    json["catalogue"] = mutant.catalogue;
  } else {
    json["catalogue"] = nullptr;
  }
  json["what"] = mutant.what;
  json["link"] = mutant.link;
  json["note"] = mutant.note;
  json["onset"] = mutant.onset;
  json["edits"] = mutant.edit_log ? "log" : "run";
  return json;
}

void PrintText(const std::vector<mutants::Mutant>& chosen) {
  size_t width = 0;
  for (const mutants::Mutant& mutant : chosen) {
    width = std::max(width, mutant.name.size());
  }
  std::string group;
  for (const mutants::Mutant& mutant : chosen) {
    if (mutant.group != group) {
      fmt::print("{}{}\n", group.empty() ? "" : "\n", mutant.group);
      group = mutant.group;
    }
    fmt::print("  {:<{}}  {:<20}  {}\n", mutant.name, width,
               mutants::ClassName(mutant.kind), mutant.what);
    for (const std::string& more : {mutant.note, mutant.link}) {
      if (!more.empty()) fmt::print("  {:<{}}  {}\n", "", width + 22, more);
    }
  }
}

ExitCode List(const ListArguments& arguments) {
  const std::vector<mutants::Mutant> chosen = Chosen(arguments.group);
  if (!arguments.json) {
    PrintText(chosen);
    return ExitCode::kPass;
  }
  Json json{{"mutants", Json::array()}};
  for (const mutants::Mutant& mutant : chosen) {
    json["mutants"].push_back(ToJson(mutant));
  }
  PrintJson(json);
  return ExitCode::kPass;
}

}  // namespace

Action DeclareMutantsList(CLI::App& app) {
  auto arguments = std::make_shared<ListArguments>();
  app.add_option("--group", arguments->group, "Of this group only");
  DeclareJson(app, arguments->json, "with the list `mutants`");
  return [arguments] { return List(*arguments); };
}

Action DeclareMutants(CLI::App& app) {
  app.description(
      "Known bugs that `isoloss run --mutant NAME` plants in a run, to measure "
      "what a gate finds");
  app.require_subcommand(1);
  CLI::App* list = AddCommand(
      app, "list", "Print name, class, what it is and who reported it",
      "isoloss mutants list --group scale");
  const Action print = DeclareMutantsList(*list);
  CLI::App* run = AddCommand(
      app, "run",
      "Plant each in runs of an experiment and print which levels of the gate "
      "catch it: the kill matrix",
      "isoloss mutants run golden/curves/nano/experiment.toml --ensemble "
      "golden/ensembles/nano-mxfp8.h5 --benign 300");
  const Action measure = DeclareMutantsRun(*run);
  return
      [list, print, measure] { return list->parsed() ? print() : measure(); };
}

}  // namespace isoloss::cli
