// Implements `isoloss lab ensemble build`, which collects the good runs that
// limits come from.

#include <fmt/format.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "arguments.h"
#include "commands.h"
#include "experiment_arguments.h"
#include "foreign_arguments.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/ensembles/ensemble_build.h"
#include "isoloss/ensembles/ensemble_plan.h"
#include "isoloss/logs/foreign_logs.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/report/log_document.h"
#include "isoloss/system/interrupt.h"
#include "json_output.h"
#include "run_choice_arguments.h"
#include "usage.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

using runlog::EnsembleKind;

/// gate::Policy::min_members demands as many.
constexpr size_t kDefaultRuns = 40;
constexpr int kMostWorkers = 4096;

struct BuildArguments {
  ensembles::EnsembleRequest request = {.runs = kDefaultRuns,
                                        .probe_steps = {1, 2, 3}};
  std::string kind = "benign";
  std::string out;
  std::vector<std::filesystem::path> from;  ///< logs of other programs
  ForeignArguments foreign;
  RunChoiceArguments runs;
  bool json = false;
};

ExitCode Written(const std::string& out, bool json) {
  const runlog::Ensemble ensemble = runlog::ReadEnsemble(out);
  if (json) {
    PrintJson(document::ToJson(report::DocumentOf(ensemble, out)));
    return ExitCode::kPass;
  }
  const auto& reference = ensemble.members.front().reference_steps.step;
  fmt::print("{}: {} good runs of arm {}, {} steps from {} to {}\n", out,
             ensemble.members.size() + 1, ensemble.provenance.arm,
             reference.size(), reference.front(), reference.back());
  return ExitCode::kPass;
}

ExitCode BuildFromLogs(const BuildArguments& arguments) {
  ensembles::CheckEnsembleOutput(arguments.out);
  runlog::WriteEnsemble(
      logs::EnsembleOfLogs(
          logs::ReadRuns(arguments.from, arguments.foreign.read),
          arguments.foreign.Alignment()),
      arguments.out);
  return Written(arguments.out, arguments.json);
}

ExitCode InterruptedMembers(const ensembles::EnsemblePlan& plan) {
  fmt::print(stderr,
             "isoloss: interrupted by a signal. Finished members are in {}; "
             "the same command goes on.\n",
             Printable(plan.folder.string()));
  return ExitCode::kInterrupted;
}

ExitCode Build(BuildArguments& arguments) {
  if (arguments.request.source.file.empty()) {
    ThrowError(ErrorKind::kConfig,
               "ensemble build: 0 experiments and 0 logs, but good runs are "
               "made by one or read from the other. Give an experiment, or "
               "logs of another program with --from.");
  }
  campaign::RequireOneProcess("ensemble build",
                              "its members run side by side in one");
  arguments.request.kind =
      arguments.kind == "benign" ? EnsembleKind::kBenign : EnsembleKind::kSeeds;
  arguments.request.out = arguments.out;
  const ensembles::EnsemblePlan plan =
      ensembles::PlanEnsemble(arguments.request);
  ensembles::CheckEnsembleOutput(arguments.out);
  if (!arguments.runs.list.empty()) {
    campaign::WriteRunList(ensembles::ListMembers(plan), arguments.runs.list);
    return ExitCode::kPass;
  }
  if (arguments.runs.chosen()) {
    return ensembles::MakeMembers(plan, arguments.runs.choice(),
                                  system::InterruptFlag())
               ? ExitCode::kPass
               : InterruptedMembers(plan);
  }
  const ensembles::EnsembleResult result =
      ensembles::BuildEnsemble(plan, system::InterruptFlag());
  if (result.interrupted) return InterruptedMembers(plan);
  runlog::WriteEnsemble(result.ensemble, arguments.out);
  ensembles::RemoveMembers(plan);
  if (arguments.json) {
    Json json = document::ToJson(
        report::DocumentOf(runlog::ReadEnsemble(arguments.out), arguments.out));
    json["kept_from_an_earlier_call"] = result.kept;
    PrintJson(json);
    return ExitCode::kPass;
  }
  fmt::print(
      "{}: {} members of {} steps, arm {}, {} of them kept from an "
      "earlier call\n",
      Printable(arguments.out), result.ensemble.members.size(), plan.steps,
      plan.arm, result.kept);
  return ExitCode::kPass;
}

Action DeclareBuild(CLI::App& app) {
  auto arguments = std::make_shared<BuildArguments>();
  DeclareExperiment(app, arguments->request.source);
  const Option from =
      AddOption(
          app, "--from", arguments->from,
          "In place of an experiment: logs of good runs of another program, "
          "the first being what the others are held against")
          .TypeName(kLogFile);
  from.Excludes("experiment").Excludes("--set");
  arguments->foreign.Declare(app);
  AddOption(app, "--kind", arguments->kind,
            "benign: one arm, perturbed harmlessly (order of "
            "summation, 1 ulp); seeds: pairs of baseline and arm with "
            "new seeds")
      .OneOf({"benign", "seeds"});
  AddOption(app, "--runs", arguments->request.runs,
            "How many members (default: 40)")
      .IntegerIn(1, 100'000);
  AddOption(app, "--out", arguments->out, "The ensemble (HDF5)")
      .Required()
      .TypeName(kHdf5File);
  AddOption(app, "--arm", arguments->request.arm,
            std::string("Of this arm") + kOneArmHelp);
  AddOption(app, "--steps", arguments->request.steps,
            "First steps of each member (default: 20, the policy's "
            "early_steps, or all if there are fewer)")
      .IntegerIn(1, kMostSteps);
  AddOption(app, "--first-seed", arguments->request.first_seed,
            "Seeds: the first of the new ones (default: 1000001)")
      .IntegerIn(0, std::numeric_limits<int64_t>::max());
  AddOption(app, "--probe-steps", arguments->request.probe_steps,
            "Seeds: steps of the precision probe, ascending (default: "
            "1 2 3, those of `isoloss lab probe`)")
      .IntegerIn(1, kMostSteps);
  AddOption(app, "--workers", arguments->request.workers,
            "Members side by side (default: one per processor)")
      .IntegerIn(0, kMostWorkers);
  DeclareJson(app, arguments->json, "the summary of `isoloss show`");
  arguments->runs.Declare(app);
  for (const char* of_training :
       {"--kind", "--runs", "--arm", "--steps", "--first-seed", "--probe-steps",
        "--workers", "--only", "--list-runs"}) {
    from.Excludes(of_training);
  }
  return [arguments] {
    return arguments->from.empty() ? Build(*arguments)
                                   : BuildFromLogs(*arguments);
  };
}

Action DeclareEnsemble(CLI::App& app) {
  static constexpr Command kSubcommands[] = {
      {"build", "Train the members of an ensemble, side by side",
       "isoloss lab ensemble build golden/curves/nano/experiment.toml --runs "
       "40 "
       "--out benign.h5",
       DeclareBuild}};
  Describe(app, "Null ensembles: good runs, whose spread sets limits");
  return DeclareCommands(app, kSubcommands);
}

}  // namespace

extern constinit const Command kCommand_ensemble = {
    "ensemble", "Make good runs, whose spread sets limits",
    "isoloss lab ensemble build golden/curves/nano/experiment.toml --runs 40 "
    "--out benign.h5",
    &DeclareEnsemble};

}  // namespace isoloss::cli
