// isoloss mutants: the known bugs that can be planted in a run.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "isoloss/campaign/mutant_list.h"
#include "json_output.h"
#include "mutants_command.h"
#include "usage.h"

namespace isoloss::cli {
namespace {

struct ListArguments {
  std::string group;
  bool json = false;
};

ExitCode List(const ListArguments& arguments) {
  const std::vector<mutants::Mutant> chosen =
      campaign::MutantsOf(arguments.group);
  if (!arguments.json) {
    fmt::print("{}", campaign::RenderMutants(chosen));
    return ExitCode::kPass;
  }
  Json json{{"mutants", Json::array()}};
  for (const mutants::Mutant& mutant : chosen) {
    json["mutants"].push_back(campaign::MutantJson(mutant));
  }
  PrintJson(json);
  return ExitCode::kPass;
}

Action DeclareMutantsList(CLI::App& app) {
  auto arguments = std::make_shared<ListArguments>();
  AddOption(app, "--group", arguments->group, "Of this group only");
  DeclareJson(app, arguments->json, "with the list `mutants`");
  return [arguments] { return List(*arguments); };
}

Action Declare(CLI::App& app) {
  static constexpr Command kSubcommands[] = {
      {"list", "Print name, class, what it is and who reported it",
       "isoloss mutants list --group scale", DeclareMutantsList},
      {"run",
       "Plant each in runs of an experiment and print which levels of the gate "
       "catch it: the kill matrix",
       "isoloss mutants run golden/curves/nano/experiment.toml --ensemble "
       "golden/ensembles/nano-mxfp8.h5 --benign 300",
       DeclareMutantsRun}};
  Describe(app,
           "Known bugs that `isoloss run --mutant NAME` plants in a run, to "
           "measure what a gate finds");
  return DeclareCommands(app, kSubcommands);
}

}  // namespace

extern constinit const Command kCommand_mutants = {
    "mutants", "List the known bugs that can be planted in a run",
    "isoloss mutants list --group scale", &Declare};

}  // namespace isoloss::cli
