// Implements `isoloss lab parity`, which compares the run on the experiment's
// mesh with the run on one rank.

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "experiment_arguments.h"
#include "isoloss/campaign/arms.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/inspection/parity_json.h"
#include "isoloss/report/heartbeat.h"
#include "isoloss/system/interrupt.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/run_hooks.h"
#include "json_output.h"

namespace isoloss::cli {
namespace {

struct ParityArguments {
  campaign::ExperimentSource source;
  std::string arm;
  int64_t steps = 2;
  bool json = false;
};

/// The heartbeat must outlive the result.
std::function<void(const runlog::StepRow&)> TellSteps(
    const std::string& arm, int64_t steps, report::Heartbeat& heartbeat) {
  return [arm, steps, &heartbeat](const runlog::StepRow& row) {
    heartbeat.Set(fmt::format("parity {}: on the mesh, step {} of {}", arm,
                              row.step, steps));
  };
}

ExitCode Parity(const ParityArguments& arguments) {
  const train::Experiment experiment = arguments.source.Load();
  const std::vector<const train::Arm*> arms =
      campaign::ArmsNamed(experiment, arguments.arm);
  const corpus::Corpus corpus = train::LoadCorpusOf(experiment);
  const std::unique_ptr<Executor> executor =
      MakeExecutor(train::CrewFor(experiment, 1));
  Json json{{"outcome", "PASS"}, {"exit_code", 0}, {"arms", Json::array()}};
  ExitCode code = ExitCode::kPass;
  std::optional<report::Heartbeat> heartbeat;
  if (campaign::SpeaksForTheJob()) heartbeat.emplace();
  for (const train::Arm* arm : arms) {
    train::RunHooks hooks;
    hooks.stop = &system::InterruptFlag();
    if (heartbeat) {
      heartbeat->Set(fmt::format("parity {}: on one rank, then on {}",
                                 arm->name, experiment.parallel.mesh.ranks));
      hooks.on_step = TellSteps(arm->name, arguments.steps, *heartbeat);
    }
    const train::ParityReport report = train::CompareWithOneRank(
        experiment, *arm, experiment.train.seeds.front(), corpus, *executor,
        arguments.steps, hooks);
    if (heartbeat) heartbeat->Clear();
    if (report.interrupted) {
      if (campaign::SpeaksForTheJob()) {
        fmt::print(stderr,
                   "isoloss: interrupted by a signal, so no verdict.\n");
      }
      return ExitCode::kInterrupted;
    }
    if (!report.passed()) code = ExitCode::kFail;
    json["arms"].push_back(inspection::ParityJson(report));
    if (campaign::SpeaksForTheJob() && !arguments.json) {
      fmt::print("{}", report.Verdict());
      std::fflush(stdout);
    }
  }
  if (campaign::SpeaksForTheJob() && arguments.json) {
    if (code != ExitCode::kPass) json["outcome"] = "FAIL";
    json["exit_code"] = static_cast<int>(code);
    PrintJson(json);
  }
  return code;
}

Action DeclareParity(CLI::App& app) {
  auto arguments = std::make_shared<ParityArguments>();
  DeclareExperiment(app, arguments->source).Required();
  AddOption(app, "--arm", arguments->arm,
            std::string("Train this arm") + kAllArmsHelp);
  AddOption(app, "--steps", arguments->steps,
            "How many steps to compare (default: 2)")
      .IntegerIn(1, kMostSteps);
  DeclareJson(app, arguments->json, "with a report of each arm");
  Describe(
      app,
      "Train arms on the mesh of [parallel] and on one rank, and compare "
      "losses, gradients, routing, biases and weights to the bit. Writes no "
      "files. Exit code 0 if equal, 1 if not, 3 if the exchange is "
      "hierarchical: its bits depend on the ranks by design");
  return [arguments] { return Parity(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_parity = {
    "parity", "Compare a run on many ranks with that on one",
    "isoloss lab parity experiments/demo/experiment.toml --arm mxfp8 "
    "--set parallel.ranks=8",
    &DeclareParity};

}  // namespace isoloss::cli
