// Implements `isoloss submit`, which divides a command's runs among many
// processes.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/sweeps/scripts.h"
#include "isoloss/sweeps/slurm.h"
#include "isoloss/sweeps/sweep.h"
#include "prose.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

using sweeps::Engine;
using sweeps::Launcher;

struct SubmitArguments {
  sweeps::SweepRequest request;
  std::string engine;
  std::string launcher = "pmi2";
  size_t elements = 0;
};

Engine EngineNamed(const std::string& name) {
  if (name == "local") return Engine::kLocal;
  return name == "make" ? Engine::kMake : Engine::kSlurm;
}

Launcher LauncherNamed(const std::string& name) {
  if (name == "pmix") return Launcher::kPmix;
  return name == "mpirun" ? Launcher::kMpirun : Launcher::kPmi2;
}

sweeps::SweepRequest RequestOf(const SubmitArguments& arguments) {
  sweeps::SweepRequest request = arguments.request;
  request.engine = EngineNamed(arguments.engine);
  request.launcher = LauncherNamed(arguments.launcher);
  if (arguments.elements > 0) {
    // The user asked for this number, whatever time each run takes.
    request.division = {.most_elements = arguments.elements,
                        .least_seconds = 0};
  }
  if (request.engine == Engine::kSlurm) {
    if (const auto most = sweeps::MostElements()) {
      request.division.most_elements =
          std::min(request.division.most_elements, *most);
    }
  }
  return request;
}

void PrintScripts(const sweeps::Sweep& sweep) {
  for (const sweeps::Script& script : sweeps::ScriptsOf(sweep)) {
    fmt::print("==> {}\n{}\n",
               Printable(sweep.File(script.name.c_str()).string()),
               PrintableLines(script.text));
  }
  fmt::print("==> it would be started by\n{}\n",
             PrintableLines(sweeps::StartText(sweep)));
}

/// Two sweeps of the same runs would wait for each other's locks.
void RefuseSecond(const sweeps::Sweep& sweep) {
  const std::vector<std::string> live = sweeps::LiveJobs(sweep);
  if (live.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "{}: job {} of this sweep has not ended, and two sweeps must not "
             "make the same runs. Wait for it (isoloss watch {}), let it go on "
             "with scontrol release {} if it is held, or end it with scancel "
             "{}.",
             sweep.list.folder.string(), live.front(),
             sweep.list.folder.string(), live.front(), live.front());
}

ExitCode StartSlurm(const sweeps::Sweep& sweep) {
  const sweeps::SlurmJobs jobs = sweeps::StartOnSlurm(sweep);
  std::string text;
  if (!jobs.array.empty()) text = fmt::format("array {}", jobs.array);
  if (!jobs.judge.empty()) {
    text += fmt::format("{}job {} that judges", text.empty() ? "" : ", ",
                        jobs.judge);
  }
  fmt::print(
      "Submitted: {}. `isoloss watch {}` shows how far they are; what they say "
      "is in {}. The same command goes on with what is missing or failed.\n",
      text.empty() ? "nothing, as all runs have finished" : text,
      Printable(sweep.list.folder.string()),
      Printable(sweep.File(sweeps::kLogFolder).string()));
  return ExitCode::kPass;
}

/// Replaces this process by the program that starts the runs.
[[noreturn]] void BecomeStart(const sweeps::Sweep& sweep) {
  std::vector<std::string> words = sweeps::StartCommand(sweep);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::fflush(stdout);
  std::fflush(stderr);
  ::execvp(pointers.front(), pointers.data());
  ThrowError(ErrorKind::kConfig,
             "submit: {} can't be started: {}. Install it, or give another "
             "--engine.",
             words.front(), std::strerror(errno));
}

ExitCode Submit(const SubmitArguments& arguments) {
  campaign::RequireOneProcess("submit", "it starts others itself");
  const sweeps::SweepRequest request = RequestOf(arguments);
  const sweeps::Sweep sweep = sweeps::PlanSweep(request);
  PrintProse(stderr, sweeps::DescribeSweep(sweep));
  if (request.dry_run) {
    PrintScripts(sweep);
    return ExitCode::kPass;
  }
  const Descriptor lock = sweeps::LockSweep(sweep);
  RefuseSecond(sweep);
  sweeps::WriteSweep(sweep);
  if (request.engine == Engine::kSlurm) return StartSlurm(sweep);
  sweeps::HandOn(lock);
  BecomeStart(sweep);
}

void DeclareProcesses(CLI::App& app, SubmitArguments& arguments) {
  sweeps::SweepRequest& request = arguments.request;
  AddOption(app, "--elements", arguments.elements,
            "Processes that divide the runs among them (default: "
            "one for each run, but none that would take less than a minute, "
            "and no more than Slurm's MaxArraySize)")
      .IntegerIn(1, 1'000'000);
  AddOption(app, "--side-by-side", request.side_by_side,
            "Elements that work at the same time (default: as many as Slurm "
            "has room for, or as the processors hold)")
      .IntegerIn(1, 1'000'000);
  AddOption(app, "--cpus", request.cpus, "Processors, and threads, of each")
      .IntegerIn(1, 4096)
      .ShowDefault();
  AddOption(app, "--processes", request.processes,
            "Slurm: the most nodes that share each run, with one process each; "
            "the bits do not depend on how many there are")
      .IntegerIn(1, 65'536)
      .ShowDefault();
  AddOption(app, "--mpi", arguments.launcher,
            "What starts the processes that share a run: srun with pmi2 "
            "(MPICH) or pmix (Open MPI), or mpirun")
      .OneOf({"pmi2", "pmix", "mpirun"})
      .ShowDefault();
}

Action DeclareSubmit(CLI::App& app) {
  auto arguments = std::make_shared<SubmitArguments>();
  sweeps::SweepRequest& request = arguments->request;
  AddOption(app, "experiment", request.experiment, "Experiment file (TOML)")
      .Required()
      .TypeName(kTomlFile);
  AddOption(app, "arguments", request.arguments,
            "After `--`: options of the command")
      .TypeName("TEXT");
  AddOption(app, "--engine", arguments->engine,
            "What starts the processes: a job array of Slurm, xargs on this "
            "machine, or make")
      .Required()
      .OneOf({"slurm", "local", "make"});
  AddOption(app, "--command", request.command, "Command whose runs are divided")
      .OneOf(sweeps::Commands())
      .ShowDefault();
  DeclareProcesses(app, *arguments);
  AddOption(app, "--minutes", request.minutes,
            "Slurm: time limit of an element, which goes on after it (default: "
            "three times what it is expected to take, and 10 more)")
      .IntegerIn(5, 10'000'000);
  AddOption(app, "--restarts", request.restarts,
            "Slurm: how often an element that something killed is started "
            "again")
      .IntegerIn(0, 1'000'000)
      .ShowDefault();
  AddOption(app, "--sbatch", request.sbatch,
            "Slurm: option of sbatch such as --sbatch=--partition=cpu; "
            "repeatable")
      .Repeatable()
      .TypeName("TEXT");
  AddOption(app, "--setup", request.setup,
            "Line of shell with which each script begins, such as 'module load "
            "mpich'; repeatable")
      .Repeatable()
      .TypeName("TEXT");
  AddFlag(app, "--dry-run", request.dry_run,
          "Print the scripts, and write and start nothing");
  Describe(app,
           "Divide the runs of a command among processes by what each is "
           "expected to take. A job array of Slurm, xargs or make starts the "
           "processes, and the last one judges the runs. The folder must be "
           "one that all machines see. The same command goes on with what is "
           "missing or failed. docs/cluster.md has the options by which a "
           "process gets its runs");
  return [arguments] { return Submit(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_submit = {
    "submit", "Divide a command's runs among processes",
    "isoloss submit experiments/demo/experiment.toml --engine slurm "
    "--dry-run -- --set train.steps=600",
    &DeclareSubmit};

}  // namespace isoloss::cli
