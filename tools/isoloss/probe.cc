// Implements `isoloss lab probe`, which checks every tensor of an arm's first
// steps against the oracle.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "experiment_arguments.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/arms.h"
#include "isoloss/document/text.h"
#include "isoloss/inspection/probe_plan.h"
#include "isoloss/report/evidence_summary.h"
#include "isoloss/report/heartbeat.h"
#include "isoloss/report/log_document.h"
#include "isoloss/step_checks/probe_cases.h"
#include "isoloss/step_checks/probe_memory.h"
#include "isoloss/system/interrupt.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/run_description.h"
#include "isoloss/verify/probe_runs.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct ProbeArguments {
  inspection::ProbeRequest request;
  bool json = false;
};

/// Errors   as verify::CheckProbeOutput, of any log that is there already.
void CheckOutputs(const std::filesystem::path& folder,
                  const train::Experiment& experiment,
                  const std::vector<const train::Arm*>& arms, uint64_t seed,
                  const corpus::Corpus& corpus) {
  for (const train::Arm* arm : arms) {
    const std::filesystem::path path =
        verify::ProbeFile(folder, arm->name, seed);
    if (!std::filesystem::exists(path)) continue;
    verify::CheckProbeOutput(
        path, train::DescribePlannedRun(experiment, *arm, seed, corpus));
  }
}

void Show(const report::ProbeSummary& summary, const std::string& run,
          const std::filesystem::path& path, double seconds) {
  document::Document shown = report::DocumentOf(summary);
  shown.Say(fmt::format("{} ({:.1f} s)", Printable(path.string()), seconds));
  shown.Append(report::ProbeVerdict(summary, run));
  fmt::print("{}", document::RenderText(shown));
  std::fflush(stdout);
}

ExitCode Probe(const ProbeArguments& arguments) {
  const inspection::ProbeRequest& request = arguments.request;
  train::Experiment experiment = request.source.Load();
  inspection::CheckProbe(request, experiment);
  const std::string whole = train::TakeWholeBatches(experiment);
  if (!whole.empty()) fmt::print(stderr, "isoloss: {}\n", whole);
  const Crew crew = train::CrewFor(experiment, 1);
  train::CheckMemory(experiment, crew);
  const std::vector<const train::Arm*> arms =
      campaign::ArmsNamed(experiment, request.arm);
  for (const train::Arm* arm : arms) {
    step_checks::CheckProbeMemory(
        experiment, *arm, inspection::ProbeOptionsOf(request, experiment, *arm),
        crew.side_by_side);
  }
  const uint64_t seed = request.seed.value_or(experiment.train.seeds.front());
  const corpus::Corpus corpus = train::LoadCorpusOf(experiment);
  const std::unique_ptr<Executor> executor = MakeExecutor(crew);
  const std::filesystem::path folder = request.Folder(experiment);
  CheckOutputs(folder, experiment, arms, seed, corpus);

  Json json{{"outcome", "PASS"}, {"exit_code", 0}, {"probes", Json::array()}};
  ExitCode code = ExitCode::kPass;
  report::Heartbeat heartbeat;
  for (const train::Arm* arm : arms) {
    const std::string name = fmt::format("{}-seed{}", arm->name, seed);
    step_checks::ProbeOptions options =
        inspection::ProbeOptionsOf(request, experiment, *arm);
    options.on_step = [&](const std::string& of_case, int64_t step) {
      heartbeat.Set(fmt::format("probe {}: {}, step {}", name, of_case, step));
    };
    const auto start = std::chrono::steady_clock::now();
    const runlog::ProbeLog log = step_checks::ProbeArm(
        experiment, *arm, seed, corpus, *executor, options);
    heartbeat.Clear();
    if (system::InterruptFlag().load()) {
      fmt::print(stderr, "isoloss: interrupted by a signal, so no log.\n");
      return ExitCode::kInterrupted;
    }
    std::filesystem::create_directories(folder);
    const std::filesystem::path path =
        verify::ProbeFile(folder, arm->name, seed);
    runlog::WriteProbeLog(log, path);
    const report::ProbeSummary summary = report::SummarizeProbe(log);
    if (!summary.passed()) code = ExitCode::kFail;
    if (arguments.json) {
      json["probes"].push_back(
          document::ToJson(report::DocumentOf(log, path.string())));
      continue;
    }
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    Show(summary, fmt::format("arm {}, seed {}", arm->name, seed), path,
         seconds.count());
  }
  if (arguments.json) {
    if (code != ExitCode::kPass) json["outcome"] = "FAIL";
    json["exit_code"] = static_cast<int>(code);
    PrintJson(json);
  }
  return code;
}

Action DeclareProbe(CLI::App& app) {
  auto arguments = std::make_shared<ProbeArguments>();
  DeclareExperiment(app, arguments->request.source).Required();
  AddOption(app, "--arm", arguments->request.arm,
            std::string("Probe this arm") + kAllArmsHelp);
  AddOption(app, "--seed", arguments->request.seed,
            "Of initial weights and batches (default: the first of "
            "train.seeds)")
      .IntegerIn(0, std::numeric_limits<int64_t>::max());
  AddOption(app, "--steps", arguments->request.steps,
            "Steps of each case (default: 3); a state that is one step "
            "old shows from the second on")
      .IntegerIn(1, kMostSteps);
  AddOption(app, "--plain-steps", arguments->request.plain_steps,
            "Steps of case plain, if more: up to where two runs part")
      .IntegerIn(1, kMostSteps);
  AddFlag(app, "--full", arguments->request.full,
          "Look at all elements; without it steps of more than 0.55 TFLOP are "
          "sampled");
  std::string cases = "Probe this case only; repeatable. Cases:";
  for (const step_checks::ProbeCase& probe_case : step_checks::ProbeCases()) {
    cases += fmt::format("\n{}: {}", probe_case.name, probe_case.purpose);
  }
  AddOption(app, "--case", arguments->request.cases, cases).Repeatable();
  AddOption(app, "--reference", arguments->request.reference,
            "Compare each tensor with this arm's too, from the same "
            "weights, batches and experts; its recipe must not quantise");
  AddOption(app, "--reference-steps", arguments->request.reference_steps,
            "Steps at which to do that (default: 1 2 3)")
      .IntegerIn(1, kMostSteps)
      .SplitAtCommas();
  AddOption(app, "--out", arguments->request.out,
            "Folder for ARM-seedN.probe.h5 (default: runs/<name>/probes)")
      .TypeName(kFolder);
  DeclareJson(app, arguments->json, "with the counts of each case");
  Describe(
      app,
      "Train the first steps of arms on structured inputs and compare every "
      "tensor with a scalar computation in double precision from the tensors "
      "that its operation read, and write a log each for the gate. Flips are "
      "explained by the order of FP32 sums, others are not: exit code 1 if "
      "there are others, of elements or of routed tokens, or if a run ended "
      "before its last step");
  return [arguments] { return Probe(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_probe = {
    "probe", "Compare an arm's first steps with an oracle",
    "isoloss lab probe experiments/demo/experiment.toml --arm mxfp8",
    &DeclareProbe};

}  // namespace isoloss::cli
