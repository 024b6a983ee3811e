#include "isoloss/goldens/golden_suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "isoloss/config/reader.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/runlog/journal.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/system/child_process.h"
#include "isoloss/system/exit_code.h"
#include "isoloss/system/interrupt.h"
#include "isoloss/train/continuation.h"
#include "isoloss/train/runner.h"
#include "isoloss/transport/launch.h"

namespace isoloss::goldens {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostProcesses = 64;
/// A run of a lane takes seconds; one that takes this long hangs.
constexpr std::chrono::seconds kLongestRun{600};

const std::vector<std::string> kLosses = {kCheckpointLoss, kRecordLoss,
                                          kRowLoss, kJournalLoss, kPartialLoss};

/// A lane of several processes needs a launcher and this build's module for it.
struct LaneLauncher {
  const char* module;
  const char* program;
  std::vector<std::string> options;
};

std::optional<LaneLauncher> FindLauncher() {
  const std::vector<std::string> modules = transport::MpiModules();
  const LaneLauncher launchers[] = {
      {"openmpi", "mpirun.openmpi", {"--oversubscribe", "--bind-to", "none"}},
      {"mpich", "mpirun.mpich", {}},
  };
  for (const LaneLauncher& launcher : launchers) {
    if (std::ranges::count(modules, launcher.module) > 0 &&
        !system::FindProgram(launcher.program).empty()) {
      return launcher;
    }
  }
  return std::nullopt;
}

std::string WhyImpossible(const Lane& lane) {
  if (lane.processes > 1 && !FindLauncher()) {
    return "no MPI library with its launcher and a module of this build";
  }
  return "";
}

/// The suite must say where runs go on, or a stop would not test much.
void CheckResumes(const config::Reader& fields, Lane& lane) {
  const bool loses_steps = std::ranges::count(lane.losses, kCheckpointLoss) > 0;
  if (lane.resumes.empty() && !loses_steps) lane.resumes = lane.stops;
  if (lane.resumes.size() == lane.stops.size()) return;
  fields.Fail("resumes", fmt::format("names {} steps, but must name one for "
                                     "each of the {} of `stops`: the step of "
                                     "the checkpoint that the stop leaves.",
                                     lane.resumes.size(), lane.stops.size()));
}

Lane ReadLane(config::Reader fields, const std::string& name,
              bool& each_kernel) {
  Lane lane{.name = name};
  fields.Texts("set", lane.overrides);
  fields.Flag("each_kernel", each_kernel);
  fields.Integer("processes", lane.processes, 1, kMostProcesses);
  fields.Numbers("stops", lane.stops);
  fields.Words("loses", lane.losses, kLosses);
  fields.Numbers("resumes", lane.resumes);
  fields.Texts("mesh_after_stop", lane.mesh_after_stop);
  fields.RejectUnknown();
  if (std::ranges::adjacent_find(lane.stops, std::greater_equal()) !=
      lane.stops.end()) {
    fields.Fail("stops", "must ascend: a run goes on after each of them.");
  }
  const auto needs_stops = [&](const char* key, const auto& values) {
    if (values.empty() || !lane.stops.empty()) return;
    fields.Fail(key, "needs `stops`: it tells what happens at each of them.");
  };
  needs_stops("loses", lane.losses);
  needs_stops("resumes", lane.resumes);
  needs_stops("mesh_after_stop", lane.mesh_after_stop);
  CheckResumes(fields, lane);
  if (lane.overrides.empty() && !each_kernel && lane.processes == 1 &&
      lane.stops.empty()) {
    fields.Fail("set",
                "is not given, nor are `each_kernel`, `processes` or `stops`: "
                "the lane executes the runs as they are. Give one of them.");
  }
  lane.impossible = WhyImpossible(lane);
  return lane;
}

/// Executes a lane by `isoloss run` as a process of its own, since a kernel
/// target, a stop or an MPI job takes a whole process.
class LaneCommand {
 public:
  LaneCommand(const GoldenFolder& folder, const Lane& lane,
              const fs::path& out) {
    if (lane.processes > 1) {
      const LaneLauncher launcher = *FindLauncher();
      command_.push_back(system::FindProgram(launcher.program).string());
      command_.insert(command_.end(), launcher.options.begin(),
                      launcher.options.end());
      command_.insert(command_.end(), {"-n", fmt::to_string(lane.processes)});
      // Tests may run as root, the only user of a container. Open MPI wants two
      // variables for that.
      environment_["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
      environment_["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
    }
    if (!lane.kernel.empty()) {
      environment_["ISOLOSS_FORCE_KERNEL"] = lane.kernel;
    }
    command_.insert(
        command_.end(),
        {system::ThisProgram().string(), "run",
         fs::absolute(folder.path / kGoldenExperiment).string(), "--out",
         fs::absolute(out).string(), "--set", "parallel.workers=1"});
    if (lane.processes > 1) Set("parallel.transport=mpi");
    for (const std::string& text : lane.overrides) Set(text);
  }

  /// Returns "" if the command ends as `wanted`, else what it did and said.
  std::string Run(const std::vector<std::string>& more,
                  system::ExitCode wanted) const {
    std::vector<std::string> command = command_;
    command.insert(command.end(), more.begin(), more.end());
    const system::ChildResult result = system::RunChild(
        command, environment_, kLongestRun, system::InterruptFlag());
    const auto code = static_cast<int>(wanted);
    if (!result.ended) {
      return fmt::format(
          "isoloss run {} was ended, since it took more than {} s or a signal "
          "came: {}",
          fmt::join(more, " "), kLongestRun.count(), result.errors);
    }
    if (result.exit_code == code) return "";
    return fmt::format(
        "isoloss run {} ended with exit code {}, not {}: {}",
        fmt::join(more, " "), result.exit_code, code,
        result.errors.empty() ? "it said nothing." : result.errors);
  }

 private:
  void Set(const std::string& text) {
    command_.insert(command_.end(), {"--set", text});
  }

  std::vector<std::string> command_;
  system::EnvironmentChanges environment_;
};

/// Any record of a journal has more bytes.
constexpr uintmax_t kTornBytes = 10;

/// Cuts off records until the last step is not whole.
void TearLastStep(const fs::path& journal) {
  runlog::JournalContent content = runlog::ReadJournal(journal);
  const size_t steps = content.log.steps.step.size();
  while (content.log.steps.step.size() == steps) {
    fs::resize_file(journal, content.valid_bytes - kTornBytes);
    content = runlog::ReadJournal(journal);
  }
}

void Lose(const std::string& loss, const runlog::RunPaths& run) {
  const fs::path journal = run.Journal();
  if (loss == kCheckpointLoss) {
    const auto found = checkpoint::FindNewest(run.Checkpoints());
    if (found.checkpoint) fs::remove_all(found.checkpoint->folder());
  } else if (loss == kRecordLoss) {
    fs::resize_file(journal, fs::file_size(journal) - kTornBytes);
  } else if (loss == kRowLoss) {
    TearLastStep(journal);
  } else if (loss == kPartialLoss) {
    fs::remove(run.PartialLog());
  } else {
    std::fstream(journal, std::ios::in | std::ios::out | std::ios::binary)
        .put('?');
  }
}

/// Runs each run alone up to its stops, then all to their end. Returns why they
/// did not get there.
std::string Execute(const GoldenFolder& folder, const Lane& lane,
                    const fs::path& out) {
  const LaneCommand command(folder, lane, out);
  std::vector<std::string> resume = {"--resume"};
  for (const std::string& text : lane.mesh_after_stop) {
    resume.insert(resume.end(), {"--set", text});
  }
  const system::ExitCode end =
      folder.suite.aborts ? system::ExitCode::kFail : system::ExitCode::kPass;
  if (lane.stops.empty()) return command.Run({}, end);
  for (const train::Run& run : train::PlanRuns(folder.experiment)) {
    std::vector<std::string> next = {"--resume"};
    for (const uint64_t stop : lane.stops) {
      next.insert(next.end(), {"--arm", run.arm->name, "--stop-after",
                               fmt::to_string(stop)});
      std::string fault = command.Run(next, system::ExitCode::kInterrupted);
      if (!fault.empty()) return fault;
      for (const std::string& loss : lane.losses) {
        Lose(loss, runlog::RunPaths{out, run.Name()});
      }
      next = resume;
    }
  }
  return command.Run(resume, end);
}

/// Returns "" if the runs went on after the steps of `lane`.
std::string ResumesFault(const Lane& lane,
                         const std::vector<compare::Run>& runs) {
  const std::vector<int64_t> expected(lane.resumes.begin(), lane.resumes.end());
  for (const compare::Run& run : runs) {
    const std::vector<int64_t> found = train::ResumedSteps(run.log);
    if (found == expected) continue;
    return fmt::format("{}: it went on from step [{}], not [{}]",
                       GoldenName(run), fmt::join(found, ", "),
                       fmt::join(expected, ", "));
  }
  return "";
}

}  // namespace

Suite ReadSuite(const fs::path& folder) {
  const fs::path path = folder / kGoldenSuite;
  Suite suite;
  if (!fs::exists(path)) return suite;
  const config::Document document(ReadTextFile(path, "Restore it."),
                                  path.string());
  config::Reader top(document);
  top.Flag("aborts", suite.aborts);
  top.Flag("probe_equal_bits", suite.probe_equal_bits);
  config::Reader lanes = top.Section("lanes");
  top.RejectUnknown();
  for (const auto& [name, fields] : lanes.Sections()) {
    bool each_kernel = false;
    const Lane lane = ReadLane(fields, name, each_kernel);
    if (!each_kernel) {
      suite.lanes.push_back(lane);
      continue;
    }
    for (const std::string& target : kernels::SupportedTargets()) {
      if (target == kernels::ActiveTarget()) continue;
      suite.lanes.push_back(lane);
      suite.lanes.back().name = fmt::format("{}-{}", name, target);
      suite.lanes.back().kernel = target;
    }
  }
  return suite;
}

LaneResult RunLane(const GoldenFolder& folder, const Lane& lane,
                   const fs::path& out) {
  LaneResult result;
  try {
    result.fault = Execute(folder, lane, out);
    if (!result.fault.empty()) return result;
    std::vector<fs::path> logs;
    for (const train::Run& run : train::PlanRuns(folder.experiment)) {
      logs.push_back(runlog::RunPaths{out, run.Name()}.Log());
    }
    result.runs = logs::ReadRuns(logs);
    result.fault = ResumesFault(lane, result.runs);
  } catch (const Error& error) {
    result.fault = error.what();
  }
  return result;
}

std::vector<compare::Run> ExpectedOfLane(
    const Lane& lane, std::vector<compare::Run> runs,
    const std::vector<compare::Run>& found) {
  if (lane.mesh_after_stop.empty()) return runs;
  for (size_t i = 0; i < runs.size(); ++i) {
    runlog::RunLog& log = runs[i].log;
    runlog::RunLog up_to_stop;
    up_to_stop.exchange = std::move(log.exchange);
    runlog::KeepRowsUpTo(static_cast<int64_t>(lane.stops.front()), up_to_stop);
    log.exchange = std::move(up_to_stop.exchange);
    log.provenance.ranks_per_node = found[i].log.provenance.ranks_per_node;
  }
  return runs;
}

}  // namespace isoloss::goldens
