// isoloss lab mutants: the known bugs that can be planted in a run, and what a
// gate catches of them.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "experiment_arguments.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/interrupt.h"
#include "isoloss/campaign/kill_matrix_folder.h"
#include "isoloss/campaign/kill_matrix_plan.h"
#include "isoloss/campaign/mutant_list.h"
#include "isoloss/report/kill_matrix.h"
#include "isoloss/report/terminal_width.h"
#include "json_output.h"
#include "run_choice_arguments.h"
#include "value_names.h"

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

struct RunArguments {
  campaign::KillMatrixRequest request;
  RunChoiceArguments runs;
  bool ascii = false;
  bool json = false;
};

/// 1 if a bug got through or a benign run did not; 4 if there was neither.
ExitCode CodeOf(const gate::KillMatrix& matrix) {
  const gate::Rate score = matrix.Score();
  const gate::Rate alarms = matrix.FalseAlarms();
  if (score.count < score.of || alarms.count > 0) return ExitCode::kFail;
  return score.of + alarms.of > 0 ? ExitCode::kPass : ExitCode::kInconclusive;
}

ExitCode InterruptedCells(const campaign::KillMatrixPlan& plan) {
  fmt::print(stderr,
             "isoloss: interrupted by a signal. Finished cells are in "
             "{}/cells; the same command goes on.\n",
             Printable(plan.folder.string()));
  return ExitCode::kInterrupted;
}

ExitCode Run(const RunArguments& arguments) {
  const campaign::KillMatrixPlan plan =
      campaign::PlanKillMatrix(arguments.request);
  if (!arguments.runs.list.empty()) {
    campaign::WriteRunList(campaign::ListKillMatrix(plan), arguments.runs.list);
    return ExitCode::kPass;
  }
  if (arguments.runs.chosen()) {
    return campaign::MakeChosenCells(plan, arguments.runs.choice(),
                                     campaign::InterruptFlag())
               ? ExitCode::kPass
               : InterruptedCells(plan);
  }
  const campaign::KillMatrixResult result =
      campaign::RunKillMatrix(plan, campaign::InterruptFlag());
  if (result.interrupted) return InterruptedCells(plan);
  const gate::KillMatrix& matrix = result.matrix;
  const std::string files = campaign::WriteKillMatrix(plan, matrix);
  if (arguments.json) {
    PrintJsonText(report::RenderKillMatrixJson(matrix));
  } else {
    fmt::print("{}\n{}: {}\n",
               report::RenderKillMatrix(matrix,
                                        report::TerminalStyle(arguments.ascii)),
               Printable(plan.folder.string()), files);
  }
  return CodeOf(matrix);
}

Action DeclareMutantsRun(CLI::App& app) {
  auto arguments = std::make_shared<RunArguments>();
  DeclareExperiment(app, arguments->request.source).Required();
  AddOption(app, "--arm", arguments->request.arm,
            std::string("Arm in which they are planted") + kOneArmHelp);
  AddOption(app, "--reference", arguments->request.reference,
            "Ask the question of precision: compare with this arm, not "
            "with the unchanged runs of the same arm");
  AddOption(app, "--ensemble", arguments->request.ensemble,
            "Benign ensemble of that arm (isoloss lab ensemble build); with "
            "--reference one of seeds with all steps")
      .TypeName(kHdf5File);
  AddOption(app, "--policy", arguments->request.policy, "Gate policy (TOML)")
      .TypeName(kTomlFile);
  AddOption(app, "--mutants", arguments->request.mutants,
            "Only mutants whose name matches one of these patterns")
      .TypeName(kMutantName);
  AddOption(app, "--seeds", arguments->request.seeds,
            "Seeds of each mutant, from the experiment's first one on "
            "(default: 2)")
      .IntegerIn(1, 1000);
  AddOption(app, "--benign", arguments->request.benign_runs,
            "Benign runs besides, which must all pass; 299 without an "
            "alarm show a rate below 1 % (default: 0)")
      .IntegerIn(0, 100'000);
  AddOption(app, "--out", arguments->request.out,
            "Folder that keeps finished cells and gets the matrix "
            "(default: runs/<experiment name>-mutants)")
      .TypeName(kFolder);
  AddFlag(app, "--ascii", arguments->ascii, "Draw with 7-bit characters only");
  DeclareJson(app, arguments->json, "that of kill_matrix.json");
  arguments->runs.Declare(app);
  return [arguments] { return Run(*arguments); };
}

Action DeclareMutants(CLI::App& app) {
  static constexpr Command kSubcommands[] = {
      {"list", "Print name, class, what it is and who reported it",
       "isoloss lab mutants list --group scale", DeclareMutantsList},
      {"run", "Measure which of them the gate catches",
       "isoloss lab mutants run golden/curves/nano/experiment.toml --ensemble "
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
    "isoloss lab mutants list --group scale", &DeclareMutants};

}  // namespace isoloss::cli
