// isoloss probe: every tensor of an arm's first steps against the oracle.

#include "isoloss/oracle/probe.h"

#include <fmt/format.h>

#include <algorithm>
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
#include "isoloss/base/error.h"
#include "isoloss/campaign/arms.h"
#include "isoloss/campaign/interrupt.h"
#include "isoloss/campaign/log_files.h"
#include "isoloss/campaign/probe_runs.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/oracle/probe_cases.h"
#include "isoloss/report/evidence_summary.h"
#include "isoloss/report/heartbeat.h"
#include "isoloss/report/log_json.h"
#include "isoloss/train/run_description.h"
#include "json_output.h"

namespace isoloss::cli {
namespace {

constexpr int64_t kUsualSteps = 3;

struct Arguments {
  campaign::ExperimentSource source;
  std::string arm;
  std::string reference;
  std::vector<int64_t> reference_steps;
  int64_t seed = -1;  // -1: the experiment's first
  int64_t plain_steps = 0;
  int64_t steps = 0;  // 0: kUsualSteps, or all if there are fewer
  std::vector<std::string> cases;
  std::string out;
  bool json = false;
};

/// Steps behind the end of the schedule are none of a run's.
void CheckSteps(const char* option, int64_t steps,
                const train::Experiment& experiment) {
  if (steps <= experiment.train.steps) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} names step {}, but the experiment has {}. Give fewer.",
             experiment.path.string(), option, steps, experiment.train.steps);
}

/// Refuses what no probe can do, before anything is trained.
void Check(const Arguments& arguments, const train::Experiment& experiment) {
  campaign::RequireOneProcess("probe", "the oracle needs all tensors in one");
  CheckSteps("--steps", arguments.steps, experiment);
  CheckSteps("--plain-steps", arguments.plain_steps, experiment);
  for (const int64_t step : arguments.reference_steps) {
    CheckSteps("--reference-steps", step, experiment);
  }
}

oracle::ProbeOptions OptionsOf(const Arguments& arguments,
                               const train::Experiment& experiment,
                               const train::Arm& arm) {
  oracle::ProbeOptions options = {
      .steps = arguments.steps > 0
                   ? arguments.steps
                   : std::min(kUsualSteps, experiment.train.steps),
      .plain_steps = arguments.plain_steps,
      .cases = arguments.cases};
  options.hooks.stop = &campaign::InterruptFlag();
  // Of all arms the reference alone is not compared with itself.
  if (!arguments.reference.empty() &&
      (arguments.reference != arm.name || !arguments.arm.empty())) {
    options.reference =
        campaign::ArmsNamed(experiment, arguments.reference).front();
    if (!arguments.reference_steps.empty()) {
      options.reference_steps = arguments.reference_steps;
    }
  }
  return options;
}

ExitCode Probe(const Arguments& arguments) {
  const train::Experiment experiment = arguments.source.Load();
  Check(arguments, experiment);
  const std::vector<const train::Arm*> arms =
      campaign::ArmsNamed(experiment, arguments.arm);
  const uint64_t seed = arguments.seed < 0
                            ? experiment.train.seeds.front()
                            : static_cast<uint64_t>(arguments.seed);
  const corpus::Corpus corpus = train::LoadCorpusOf(experiment);
  const int workers = experiment.parallel.workers;
  ThreadTeam team(workers > 0 ? workers : AvailableProcessors());
  const std::filesystem::path folder =
      arguments.out.empty()
          ? campaign::ResultsFolder(experiment, "") / campaign::kProbeFolder
          : std::filesystem::path(arguments.out);

  for (const train::Arm* arm : arms) {
    const std::filesystem::path path =
        campaign::ProbeFile(folder, arm->name, seed);
    if (!std::filesystem::exists(path)) continue;
    campaign::CheckProbeOutput(
        path, train::DescribePlannedRun(experiment, *arm, seed, corpus));
  }

  Json json{{"outcome", "PASS"}, {"exit_code", 0}, {"probes", Json::array()}};
  ExitCode code = ExitCode::kPass;
  report::Heartbeat heartbeat;
  for (const train::Arm* arm : arms) {
    const std::string name = fmt::format("{}-seed{}", arm->name, seed);
    oracle::ProbeOptions options = OptionsOf(arguments, experiment, *arm);
    options.on_step = [&](const std::string& of_case, int64_t step) {
      heartbeat.Set(fmt::format("probe {}: {}, step {}", name, of_case, step));
    };
    const auto start = std::chrono::steady_clock::now();
    const runlog::ProbeLog log =
        oracle::ProbeArm(experiment, *arm, seed, corpus, team, options);
    heartbeat.Clear();
    if (campaign::InterruptFlag().load()) {
      fmt::print(stderr, "isoloss: interrupted by a signal, so no log.\n");
      return ExitCode::kInterrupted;
    }
    std::filesystem::create_directories(folder);
    const std::filesystem::path path =
        campaign::ProbeFile(folder, arm->name, seed);
    runlog::WriteProbeLog(log, path);
    const report::ProbeSummary summary = report::SummarizeProbe(log);
    if (!summary.passed()) code = ExitCode::kFail;
    if (arguments.json) {
      json["probes"].push_back(report::ProbeJson(log, path.string()));
      continue;
    }
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    fmt::print("{}{} ({:.1f} s)\n{}", report::RenderProbe(summary),
               path.string(), seconds.count(),
               report::ProbeVerdict(
                   summary, fmt::format("arm {}, seed {}", arm->name, seed)));
    std::fflush(stdout);
  }
  if (arguments.json) {
    if (code != ExitCode::kPass) json["outcome"] = "FAIL";
    json["exit_code"] = static_cast<int>(code);
    PrintJson(json);
  }
  return code;
}

Action Declare(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  DeclareExperiment(app, arguments->source);
  AddOption(app, "--arm", arguments->arm,
            std::string("Probe this arm") + kAllArmsHelp);
  AddOption(app, "--seed", arguments->seed,
            "Of initial weights and batches (default: the first of "
            "train.seeds)")
      .IntegerIn(0, std::numeric_limits<int64_t>::max());
  AddOption(app, "--steps", arguments->steps,
            "Steps of each case (default: 3); a state that is one step "
            "old shows from the second on")
      .IntegerIn(1, kMostSteps);
  AddOption(app, "--plain-steps", arguments->plain_steps,
            "Steps of case plain, if more: up to where two runs part")
      .IntegerIn(1, kMostSteps);
  std::string cases = "Probe this case only; repeatable. Cases:";
  for (const oracle::ProbeCase& probe_case : oracle::ProbeCases()) {
    cases += fmt::format("\n{}: {}", probe_case.name, probe_case.purpose);
  }
  AddOption(app, "--case", arguments->cases, cases).Repeatable();
  AddOption(app, "--reference", arguments->reference,
            "Compare each tensor with this arm's too, from the same "
            "weights, batches and experts; its recipe must not quantise");
  AddOption(app, "--reference-steps", arguments->reference_steps,
            "Steps at which to do that (default: 1 2 3)")
      .IntegerIn(1, kMostSteps)
      .SplitAtCommas();
  AddOption(app, "--out", arguments->out,
            "Folder for ARM-seedN.probe.h5 (default: runs/<name>/probes)");
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
    "probe", "Compare every tensor of an arm's first steps with an oracle",
    "isoloss probe experiments/mxfp8_vs_bf16/experiment.toml --arm mxfp8",
    &Declare};

}  // namespace isoloss::cli
