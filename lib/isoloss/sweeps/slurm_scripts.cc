#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "isoloss/device/devices.h"
#include "isoloss/sweeps/job_script.h"
#include "isoloss/sweeps/scripts.h"
#include "isoloss/sweeps/slurm.h"

namespace isoloss::sweeps {
namespace {

/// Limits an element by the time of the longest one on one thread. A
/// prediction is off by less than a factor of 3, and an element that takes
/// longer is started again.
int MinutesOf(const Sweep& sweep) {
  if (sweep.request.minutes > 0) return sweep.request.minutes;
  constexpr double kMinute = 60;
  constexpr double kFactor = 3;
  constexpr double kMore = 10;
  constexpr double kMost = 1e6;
  return static_cast<int>(std::min(
      kMost, std::ceil(kFactor * sweep.LongestSeconds() / kMinute) + kMore));
}

/// A job is told to write a last checkpoint this long, in seconds, before its
/// time limit. Slurm looks at limits every 30 s.
constexpr int kWarningSeconds = 120;

std::string Directives(const Sweep& sweep, const std::string& name,
                       const std::vector<std::string>& own) {
  std::vector<std::string> options = {
      fmt::format("--job-name=isoloss-{}", name),
      fmt::format("--cpus-per-task={}", sweep.request.cpus), "--requeue",
      "--open-mode=append"};
  if (sweep.list.on == "gpu") options.emplace_back("--gres=gpu:1");
  options.insert(options.end(), own.begin(), own.end());
  options.insert(options.end(), sweep.request.sbatch.begin(),
                 sweep.request.sbatch.end());
  std::string text;
  for (const std::string& option : options) {
    text += fmt::format("#SBATCH {}\n", option);
  }
  return text;
}

std::string ArrayDirectives(const Sweep& sweep) {
  std::vector<std::string> options = {
      fmt::format("--ntasks={}", sweep.request.processes),
      fmt::format("--time={}", MinutesOf(sweep)),
      fmt::format("--signal=B:USR1@{}", kWarningSeconds)};
  if (sweep.request.processes == 1) {
    options.emplace_back("--nodes=1");
  } else {
    // Without the second one Slurm gives one node though several are free.
    options.push_back(fmt::format("--nodes=1-{}", sweep.request.processes));
    options.emplace_back("--spread-job");
  }
  return Directives(sweep, "runs", options);
}

std::string LauncherText(const Sweep& sweep) {
  if (sweep.request.processes == 1) return "srun --mpi=none";
  switch (sweep.request.launcher) {
    case Launcher::kPmi2:
      return "srun --mpi=pmi2";
    case Launcher::kPmix:
      return "srun --mpi=pmix";
    case Launcher::kMpirun:
      break;
  }
  return "mpirun";
}

/// Examines the nodes for the experiment, with the changes that the command's
/// own options make.
std::vector<std::string> CheckCommand(const Sweep& sweep) {
  std::vector<std::string> words =
      Command(sweep, {"lab", "doctor", "--job", sweep.request.experiment,
                      "--out", sweep.File(kStateFolder).string()});
  const std::vector<std::string>& given = sweep.request.arguments;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].starts_with("--set=")) words.push_back(given[i]);
    if (given[i] == "--set" && i + 1 < given.size()) {
      words.insert(words.end(), {"--set", given[i + 1]});
    }
  }
  if (sweep.request.processes > 1) {
    words.insert(words.end(), {"--set", "parallel.transport=mpi"});
  }
  if (sweep.list.on != device::kCpu) {
    words.insert(words.end(),
                 {"--set", fmt::format("parallel.on={}", sweep.list.on)});
  }
  // The check asks for the disk of few runs, as most runs are there already.
  words.insert(words.end(), {"--set", "train.seeds=[1]"});
  return words;
}

/// Sets the variables that job.sh reads.
std::string JobVariables(const Sweep& sweep, const std::string& launcher) {
  return fmt::format("OUT={}\nLAUNCHER={}\nFAULTS_ALLOWED={}\n",
                     sweep.list.folder.string(), Quoted(launcher),
                     sweep.request.restarts);
}

Script ArrayScript(const Sweep& sweep) {
  const std::string folder = sweep.folder().string();
  std::string text = Beginning(
      sweep, "Makes the runs of line SLURM_ARRAY_TASK_ID of elements.txt.",
      ArrayDirectives(sweep));
  text += fmt::format(
      R"sh(line=${{SLURM_ARRAY_TASK_ID:-1}}
IFS=$'\t' read -r runs JOURNALS RESULTS < <(sed -n "${{line}}p" {0}/elements.txt)
[ "$JOURNALS" != - ] || JOURNALS=
{1}STATE={0}/{2}/$line
check=({3})
source {0}/job.sh {4} "$runs"
)sh",
      folder, JobVariables(sweep, LauncherText(sweep)), kStateFolder,
      Quoted(CheckCommand(sweep)), Quoted(Command(sweep, sweep.make)));
  return {.name = "array.sh", .text = std::move(text)};
}

/// Nothing tells how long a judge takes. It reads all logs (10,000 take a
/// quarter of an hour) and has the oracle replay steps. For some commands it
/// makes the runs that are missing. It gets two hours more than an element,
/// which goes on after it.
int JudgeMinutes(const Sweep& sweep) {
  constexpr int kMore = 120;
  constexpr size_t kLogsAMinute = 500;
  return MinutesOf(sweep) + kMore +
         static_cast<int>(sweep.list.runs.size() / kLogsAMinute);
}

Script SlurmJudge(const Sweep& sweep) {
  std::string text = Beginning(
      sweep, "Judges what the elements have left.",
      Directives(sweep, "judge",
                 {"--nodes=1", "--ntasks=1",
                  fmt::format("--time={}", JudgeMinutes(sweep)),
                  fmt::format("--signal=B:USR1@{}", kWarningSeconds)}));
  text += fmt::format(
      "JOURNALS=\nRESULTS=\n{}STATE={}/{}/judge\nsource {}/job.sh {}\n",
      JobVariables(sweep, "srun --mpi=none"), sweep.folder().string(),
      kStateFolder, sweep.folder().string(),
      Quoted(Command(sweep, sweep.judge)));
  return {.name = "judge.sh", .text = std::move(text)};
}

}  // namespace

std::vector<Script> SlurmScripts(const Sweep& sweep) {
  RequirePlainPath(sweep.list.folder.string(), "the batch script");
  std::vector<Script> scripts = {ArrayScript(sweep),
                                 {.name = "job.sh", .text = kJobScript}};
  if (!sweep.judge.empty()) scripts.push_back(SlurmJudge(sweep));
  return scripts;
}

}  // namespace isoloss::sweeps
