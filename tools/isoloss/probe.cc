// isoloss probe: every tensor of an arm's first steps against the oracle.

#include "isoloss/oracle/probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "experiment_command.h"
#include "interrupt.h"
#include "isoloss/base/error.h"
#include "isoloss/oracle/probe_cases.h"
#include "isoloss/train/runner.h"
#include "isoloss/transport/launch.h"

namespace isoloss::cli {
namespace {

constexpr int64_t kUsualSteps = 3;
constexpr int64_t kMostSteps = 1'000'000'000;

struct Arguments {
  ExperimentSource source;
  std::string arm;
  std::string reference;
  std::vector<int64_t> reference_steps;
  int64_t seed = -1;  // -1: the experiment's first
  int64_t plain_steps = 0;
  int64_t steps = 0;  // 0: kUsualSteps, or all if there are fewer
  std::vector<std::string> cases;
  std::string out;
};

/// What the oracle found in one case.
struct Totals {
  int64_t tensors = 0;
  int64_t elements = 0;
  int64_t flips = 0;
  int64_t other = 0;
  double expected_flips = 0.0;
  size_t worst = 0;  // row with most others, then the largest ratio

  void Add(const runlog::OracleColumns& rows, size_t i) {
    ++tensors;
    elements += rows.elements[i];
    flips += rows.flips[i];
    other += rows.other[i];
    expected_flips += rows.expected_flips[i];
    const auto badness = [&](size_t row) {
      return std::pair(rows.other[row] > 0, rows.worst_ratio[row]);
    };
    if (tensors == 1 || badness(i) > badness(worst)) worst = i;
  }
};

void PrintTable(const runlog::ProbeLog& log) {
  fmt::print("{:<12} {:>8} {:>11} {:>9} {:>11} {:>6}  {}\n", "case", "tensors",
             "elements", "flips", "expected", "other", "worst tensor");
  const runlog::OracleColumns& rows = log.oracle;
  for (size_t c = 0; c < log.cases.size(); ++c) {
    Totals totals;
    for (size_t i = 0; i < rows.step.size(); ++i) {
      if (rows.probe_case[i] == static_cast<int64_t>(c)) totals.Add(rows, i);
    }
    const size_t i = totals.worst;
    fmt::print("{:<12} {:>8} {:>11} {:>9} {:>11.1f} {:>6}  ", log.cases[c],
               totals.tensors, totals.elements, totals.flips,
               totals.expected_flips, totals.other);
    if (totals.tensors == 0 || rows.worst_row[i] < 0) {
      fmt::print("all equal\n");
      continue;
    }
    fmt::print("{} [{}, {}] at step {}: {:.6g}, oracle {:.6g}\n",
               log.tensors[static_cast<size_t>(rows.tensor[i])],
               rows.worst_row[i], rows.worst_column[i], rows.step[i],
               rows.worst_value[i], rows.worst_expected[i]);
  }
}

/// Whether rounding explains all that differs from the oracle.
bool IsExplained(const runlog::ProbeLog& log) {
  const auto none = [](const std::vector<int64_t>& other) {
    return std::ranges::all_of(other, [](int64_t n) { return n == 0; });
  };
  return none(log.oracle.other) && none(log.routing.other);
}

/// Steps behind the end of the schedule are none of a run's.
void CheckSteps(const char* option, int64_t steps,
                const train::Experiment& experiment) {
  if (steps <= experiment.train.steps) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} names step {}, but the experiment has {}. Give fewer.",
             experiment.path.string(), option, steps, experiment.train.steps);
}

void PrintRouting(const runlog::ProbeLog& log) {
  int64_t tokens = 0;
  int64_t flips = 0;
  int64_t other = 0;
  for (size_t i = 0; i < log.routing.step.size(); ++i) {
    tokens += log.routing.tokens[i];
    flips += log.routing.flips[i];
    other += log.routing.other[i];
  }
  fmt::print("routing      {} tokens, {} flips, {} other\n", tokens, flips,
             other);
}

ExitCode Probe(const Arguments& arguments) {
  const train::Experiment experiment = arguments.source.Load();
  if (const int processes = transport::DetectLaunch().processes;
      processes > 1) {
    ThrowError(ErrorKind::kConfig,
               "isoloss probe: {} processes share the ranks, but the oracle "
               "needs all tensors in one. Start it without a launcher.",
               processes);
  }
  CheckSteps("--steps", arguments.steps, experiment);
  CheckSteps("--plain-steps", arguments.plain_steps, experiment);
  for (const int64_t step : arguments.reference_steps) {
    CheckSteps("--reference-steps", step, experiment);
  }
  // Checks all recipes and the names of the arms.
  const train::Run run = train::PlanRuns(experiment, arguments.arm).front();
  const uint64_t seed =
      arguments.seed < 0 ? run.seed : static_cast<uint64_t>(arguments.seed);
  const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);
  const int workers = experiment.parallel.workers;
  ThreadTeam team(workers > 0 ? workers : AvailableProcessors());

  const bool terminal = isatty(STDERR_FILENO) != 0;
  oracle::ProbeOptions options = {
      .steps = arguments.steps > 0
                   ? arguments.steps
                   : std::min(kUsualSteps, experiment.train.steps),
      .plain_steps = arguments.plain_steps,
      .cases = arguments.cases};
  options.hooks.stop = &InterruptFlag();
  options.on_step = [&](const std::string& name, int64_t step) {
    if (terminal) {
      fmt::print(stderr, "\r\033[Kprobe {}: {}, step {}", run.Name(), name,
                 step);
    }
  };
  if (!arguments.reference.empty()) {
    options.reference =
        train::PlanRuns(experiment, arguments.reference).front().arm;
    if (!arguments.reference_steps.empty()) {
      options.reference_steps = arguments.reference_steps;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const runlog::ProbeLog log =
      oracle::ProbeArm(experiment, *run.arm, seed, corpus, team, options);
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (InterruptFlag().load()) {
    fmt::print(stderr, "isoloss: interrupted by a signal, so no log.\n");
    return ExitCode::kInterrupted;
  }

  const std::filesystem::path folder =
      arguments.out.empty() ? std::filesystem::path("runs") / experiment.name
                            : std::filesystem::path(arguments.out);
  std::filesystem::create_directories(folder);
  const std::filesystem::path path =
      folder / fmt::format("{}-seed{}.probe.h5", run.arm->name, seed);
  runlog::WriteProbeLog(log, path);
  PrintTable(log);
  PrintRouting(log);
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  fmt::print("{} ({:.1f} s)\n", path.string(), seconds.count());
  if (!log.provenance.complete) {
    fmt::print(stderr,
               "isoloss: the probe is incomplete: its own numbers ended a run "
               "before its last step.\n");
  }
  return log.provenance.complete && IsExplained(log) ? ExitCode::kPass
                                                     : ExitCode::kFail;
}

}  // namespace

Action DeclareProbe(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  arguments->source.Declare(app);
  app.add_option("--arm", arguments->arm,
                 "Probe this arm (default: the first of the file)");
  app.add_option("--seed", arguments->seed,
                 "Of initial weights and batches (default: the first of "
                 "train.seeds)")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()));
  app.add_option("--steps", arguments->steps,
                 "Steps of each case (default: 3); a state that is one step "
                 "old shows from the second on")
      ->check(CLI::Range(int64_t{1}, kMostSteps));
  app.add_option("--plain-steps", arguments->plain_steps,
                 "Steps of case plain, if more: up to where two runs part")
      ->check(CLI::Range(int64_t{1}, kMostSteps));
  std::string cases = "Probe this case only; repeatable. Cases:";
  for (const oracle::ProbeCase& probe_case : oracle::ProbeCases()) {
    cases += fmt::format("\n{}: {}", probe_case.name, probe_case.purpose);
  }
  app.add_option("--case", arguments->cases, cases)->allow_extra_args(false);
  app.add_option("--reference", arguments->reference,
                 "Compare each tensor with this arm's too, from the same "
                 "weights, batches and experts; its recipe must not quantise");
  app.add_option("--reference-steps", arguments->reference_steps,
                 "Steps at which to do that (default: 1 2 3)")
      ->check(CLI::Range(int64_t{1}, kMostSteps))
      ->delimiter(',');
  app.add_option("--out", arguments->out,
                 "Folder for ARM-seedN.probe.h5 (default: runs/<name>)");
  app.description(
      "Train the first steps of an arm on structured inputs and compare every "
      "tensor with a scalar computation in double precision from the tensors "
      "that its operation read, and write a log for the gate. Flips are "
      "explained by the order of FP32 sums, others are not: exit code 1 if "
      "there are others, of elements or of routed tokens, or if a run ended "
      "before its last step");
  return [arguments] { return Probe(*arguments); };
}

}  // namespace isoloss::cli
