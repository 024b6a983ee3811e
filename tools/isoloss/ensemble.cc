// isoloss ensemble build: the good runs that limits come from.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "arguments.h"
#include "arms.h"
#include "commands.h"
#include "ensemble_build.h"
#include "evidence_json.h"
#include "experiment_command.h"
#include "interrupt.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/gate/policy.h"
#include "isoloss/transport/launch.h"
#include "json_output.h"
#include "usage.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;
using runlog::EnsembleKind;

/// Far from the seeds that people choose, so that none is judged by itself.
constexpr uint64_t kFirstNewSeed = 1'000'001;
/// As many as the limits of docs/gate.md rest on.
constexpr size_t kDefaultRuns = 40;
constexpr int kMostWorkers = 4096;

struct BuildArguments {
  ExperimentSource source;
  std::string kind = "benign";
  std::string arm;
  size_t runs = kDefaultRuns;
  /// Empty: the window that level L4 looks at, or all if there are fewer.
  std::optional<int64_t> steps;
  uint64_t first_seed = kFirstNewSeed;
  std::vector<int64_t> probe_steps;
  std::string out;
  int workers = 0;
  bool json = false;
};

/// Benign members have the experiment's seeds in turn, others new ones.
std::vector<uint64_t> SeedsOf(const BuildArguments& arguments,
                              const train::Experiment& experiment,
                              bool benign) {
  std::vector<uint64_t> seeds(arguments.runs);
  const std::vector<uint64_t>& own = experiment.train.seeds;
  for (size_t i = 0; i < seeds.size(); ++i) {
    seeds[i] = benign ? own[i % own.size()] : arguments.first_seed + i;
    if (!benign && std::ranges::count(own, seeds[i]) != 0) {
      ThrowError(ErrorKind::kConfig,
                 "ensemble: seed {} is one of the experiment's, but a run must "
                 "not be judged by itself. Choose other seeds with "
                 "--first-seed.",
                 seeds[i]);
    }
  }
  return seeds;
}

EnsemblePlan PlanOf(const BuildArguments& arguments) {
  EnsemblePlan plan;
  plan.experiment = arguments.source.Load();
  const bool benign = arguments.kind == "benign";
  plan.kind = benign ? EnsembleKind::kBenign : EnsembleKind::kSeeds;
  plan.arm = OneArm(plan.experiment, arguments.arm).name;
  plan.baseline_arm = plan.experiment.arms.front().name;
  if (!benign && plan.arm == plan.baseline_arm) {
    ThrowError(ErrorKind::kConfig,
               "{}: an ensemble of seeds pairs an arm with the baseline, but "
               "{} is the baseline. Give another --arm.",
               plan.experiment.path.string(), plan.arm);
  }
  const int64_t own_steps = plan.experiment.train.steps;
  plan.steps =
      arguments.steps.value_or(std::min(gate::Policy{}.early_steps, own_steps));
  if (plan.steps > own_steps) {
    ThrowError(ErrorKind::kConfig,
               "{}: --steps is {}, but the experiment has {}. Give fewer.",
               plan.experiment.path.string(), plan.steps, own_steps);
  }
  plan.runs = arguments.runs;
  plan.seeds = SeedsOf(arguments, plan.experiment, benign);
  if (!benign) plan.probe_steps = arguments.probe_steps;
  plan.folder = arguments.out + ".members";
  plan.workers = arguments.workers;
  return plan;
}

/// Before hours of training: what is there may be replaced only by its like.
void CheckOut(const fs::path& out) {
  if (fs::is_directory(out) || !out.has_filename()) {
    ThrowError(ErrorKind::kConfig,
               "{}: --out is a folder, but an ensemble is a file. Give a path "
               "such as {}.",
               out.string(), (out / "ensemble.h5").string());
  }
  std::error_code error;  // what can't be seen is refused with its folder
  if (!fs::exists(out, error)) return;
  try {
    runlog::ReadEnsemble(out);
  } catch (const Error& reason) {
    ThrowError(ErrorKind::kConfig,
               "{}: --out is there and is no null ensemble, so it is not "
               "replaced ({}). Remove it, or give another --out.",
               out.string(), reason.what());
  }
}

ExitCode Build(const BuildArguments& arguments) {
  if (transport::DetectLaunch().processes > 1) {
    ThrowError(ErrorKind::kConfig,
               "ensemble build: it was started as {} processes, but its "
               "members run side by side in one. Start it without a launcher.",
               transport::DetectLaunch().processes);
  }
  const EnsemblePlan plan = PlanOf(arguments);
  CheckOut(arguments.out);
  const EnsembleResult result = BuildEnsemble(plan, InterruptFlag());
  if (result.interrupted) {
    fmt::print(stderr,
               "isoloss: interrupted by a signal. Finished members are in {}; "
               "the same command goes on.\n",
               plan.folder.string());
    return ExitCode::kInterrupted;
  }
  runlog::WriteEnsemble(result.ensemble, arguments.out);
  RemoveFolder(plan.folder);
  if (arguments.json) {
    Json json =
        EnsembleJson(runlog::ReadEnsemble(arguments.out), arguments.out);
    json["kept_from_an_earlier_call"] = result.kept;
    PrintJson(json);
    return ExitCode::kPass;
  }
  fmt::print(
      "{}: {} members of {} steps, arm {}, {} of them kept from an "
      "earlier call\n",
      arguments.out, result.ensemble.members.size(), plan.steps, plan.arm,
      result.kept);
  return ExitCode::kPass;
}

}  // namespace

Action DeclareEnsemble(CLI::App& app) {
  auto arguments = std::make_shared<BuildArguments>();
  app.description("Null ensembles: good runs, whose spread sets limits");
  app.require_subcommand(1);
  CLI::App* build = AddCommand(
      app, "build", "Train the members of an ensemble, side by side",
      "isoloss ensemble build golden/curves/nano/experiment.toml --runs 40 "
      "--out benign.h5");
  arguments->source.Declare(*build);
  build
      ->add_option("--kind", arguments->kind,
                   "benign: one arm, perturbed harmlessly (order of "
                   "summation, 1 ulp); seeds: pairs of baseline and arm with "
                   "new seeds")
      ->check(OneOf({"benign", "seeds"}));
  build->add_option("--runs", arguments->runs, "How many members (default: 40)")
      ->check(IntegerIn(1, 100'000));
  build->add_option("--out", arguments->out, "The ensemble (HDF5)")->required();
  build->add_option("--arm", arguments->arm,
                    std::string("Of this arm") + kOneArmHelp);
  build
      ->add_option("--steps", arguments->steps,
                   "First steps of each member (default: 20, the policy's "
                   "early_steps, or all if there are fewer)")
      ->check(IntegerIn(1, kMostSteps));
  build
      ->add_option("--first-seed", arguments->first_seed,
                   "Seeds: the first of the new ones (default: 1000001)")
      ->check(IntegerIn(0, std::numeric_limits<int64_t>::max()));
  build
      ->add_option("--probe-steps", arguments->probe_steps,
                   "Seeds: steps of the precision probe, ascending (default: "
                   "1 2 3, those of `isoloss probe`)")
      ->check(IntegerIn(1, kMostSteps));
  build
      ->add_option("--workers", arguments->workers,
                   "Members side by side (default: one per processor)")
      ->check(IntegerIn(0, kMostWorkers));
  DeclareJson(*build, arguments->json, "the summary of `isoloss show`");
  return [arguments] {
    if (arguments->probe_steps.empty()) arguments->probe_steps = {1, 2, 3};
    return Build(*arguments);
  };
}

}  // namespace isoloss::cli
