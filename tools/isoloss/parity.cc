// isoloss parity: is the run on the experiment's mesh the run on one rank?

#include "isoloss/train/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "experiment_command.h"
#include "interrupt.h"
#include "isoloss/base/error.h"
#include "isoloss/train/runner.h"
#include "isoloss/transport/launch.h"

namespace isoloss::cli {
namespace {

using train::ParityReport;

struct Arguments {
  ExperimentSource source;
  std::string arm;
  int64_t steps = 2;
  bool json = false;
};

/// null where JSON has no such number; `message` has it in words.
nlohmann::ordered_json NumberOrNull(double value) {
  if (std::isfinite(value)) return value;
  return nullptr;
}

void PrintJson(const ParityReport& report) {
  nlohmann::ordered_json json{{"outcome", report.first ? "FAIL" : "PASS"},
                              {"arm", report.arm},
                              {"seed", report.seed},
                              {"ranks", report.ranks},
                              {"expert_data_parallel", report.replicas},
                              {"transport", report.transport},
                              {"processes", report.processes},
                              {"steps", report.steps},
                              {"gradients_per_step", report.gradients},
                              {"first_difference", nullptr}};
  if (report.first) {
    json["first_difference"] = {
        {"step", report.first->step},
        {"what", report.first->what},
        {"of_tensor", report.first->of_tensor},
        {"one_rank", NumberOrNull(report.first->one_rank)},
        {"meshed", NumberOrNull(report.first->meshed)},
        {"process", report.first->process},
        {"message", report.first->Describe()}};
  }
  fmt::print("{}\n", json.dump(2));
}

/// Processes of one job may share a machine; two steps need no more than that.
int Workers(const train::Experiment& experiment) {
  if (experiment.parallel.workers > 0) return experiment.parallel.workers;
  return std::max(1,
                  AvailableProcessors() / transport::DetectLaunch().processes);
}

ExitCode Parity(const Arguments& arguments) {
  const train::Experiment experiment = arguments.source.Load();
  // Checks all recipes and the name of the arm.
  const train::Run run = train::PlanRuns(experiment, arguments.arm).front();
  const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);
  ThreadTeam team(Workers(experiment));
  train::RunHooks hooks;
  hooks.stop = &InterruptFlag();
  const ParityReport report = train::CompareWithOneRank(
      experiment, *run.arm, run.seed, corpus, team, arguments.steps, hooks);
  if (report.interrupted) {
    if (SpeaksForTheJob()) {
      fmt::print(stderr, "isoloss: interrupted by a signal, so no verdict.\n");
    }
    return ExitCode::kInterrupted;
  }
  if (SpeaksForTheJob()) {
    if (arguments.json) {
      PrintJson(report);
    } else {
      fmt::print("{}", report.Verdict());
    }
  }
  return report.passed() ? ExitCode::kPass : ExitCode::kFail;
}

}  // namespace

Action DeclareParity(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  arguments->source.Declare(app);
  app.add_option("--arm", arguments->arm,
                 "Train this arm (default: the first of the file)");
  app.add_option("--steps", arguments->steps,
                 "How many steps to compare (default: 2)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", arguments->json,
               "Print a JSON object in place of the verdict");
  app.description(
      "Train an arm on the mesh of [parallel] and on one rank, and compare "
      "losses, gradients, routing, biases and weights to the bit. Writes no "
      "files. Exit code 0 if equal, 1 if not, 3 if the exchange is "
      "hierarchical: its bits depend on the ranks by design");
  return [arguments] { return Parity(*arguments); };
}

}  // namespace isoloss::cli
