#include "doctor_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "isoloss/base/build_info.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/doctor/job_health.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/report/node_table.h"
#include "isoloss/report/terminal_width.h"
#include "isoloss/transport/launch.h"
#include "isoloss/transport/mpi_job.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

using doctor::JobHealth;

/// No wait for another process is longer, even if the experiment allows more:
/// the parts of the check take some ten seconds in all on a loaded machine.
constexpr double kMostPatience = 20;

/// Writes one line for each node, all in one call, since processes of many
/// nodes append to one file.
void AppendToSickFile(const std::string& file,
                      const std::vector<doctor::SickNode>& sick) {
  if (file.empty() || sick.empty()) return;
  std::string lines;
  for (const doctor::SickNode& node : sick) {
    lines +=
        fmt::format("{}\t{}\n", Printable(node.node), Printable(node.reason));
  }
  const int to =
      open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
           0666);  // less the mask
  const bool written = to >= 0 && write(to, lines.data(), lines.size()) ==
                                      static_cast<ssize_t>(lines.size());
  const int error = errno;
  if (to >= 0) close(to);
  if (written) return;
  std::fputs(
      fmt::format("isoloss: {}: sick nodes can't be appended: {}. The "
                  "lines `sick: ...` name them.\n",
                  Printable(file), std::generic_category().message(error))
          .c_str(),
      stderr);
}

void PrintTable(const JobHealth& job, const doctor::JobNeeds& needs) {
  const document::TextStyle style = report::TerminalStyle(/*ascii=*/false);
  std::vector<report::NodeRow> rows = doctor::RowsOf(job);
  for (report::NodeRow& row : rows) row.host = Printable(row.host);
  fmt::print("{}", report::DrawNodeTable(rows, style));
  for (const doctor::ProcessHealth& process : job.processes) {
    for (const std::string& note : process.notes) {
      const std::string text =
          fmt::format("note: {}: process {}: {}.", Printable(process.node),
                      process.process, Printable(note));
      fmt::print("{}\n", document::Wrap(text, 0, 0, style));
    }
  }
  const std::string result = fmt::format(
      "{} of {} processes are healthy, in {:.1f} seconds. Each of them takes "
      "at least {} of memory, and all results at most {} of disk. Limits: the "
      "known bits, clocks within {:g} s, no damaged byte; a tenth of the "
      "median rate is a note (exit code {}).",
      std::ranges::count_if(
          job.processes,
          [](const auto& process) { return process.problems.empty(); }),
      job.processes.size(), job.seconds, campaign::SizeText(needs.memory),
      campaign::SizeText(needs.disk), doctor::kMostSecondsOff,
      job.healthy() ? 0 : 1);
  fmt::print("\n{}\n", document::Wrap(result, 0, 0, style));
}

}  // namespace

void DeclareDoctorJob(CLI::App& app, DoctorJobArguments& arguments) {
  AddOption(app, "--job", arguments.source.file,
            "Examine the nodes of the job that this process belongs to, "
            "before it trains this experiment; to be started by the job's "
            "launcher")
      .TypeName(kTomlFile);
  AddOption(app, "--set", arguments.source.overrides,
            "section.key=value; overrides the experiment's file, checked like "
            "it; repeatable")
      .Repeatable()
      .TypeName(kSetting)
      .Needs("--job");
  AddOption(app, "--sick-file", arguments.sick_file,
            "Append a line for each problem to this file: the node, a "
            "tabulator, the reason. Each process does so for itself, process "
            "0 for all")
      .TypeName(kAnyFile)
      .Needs("--job");
}

ExitCode ExamineDoctorJob(const DoctorJobArguments& arguments,
                          const std::string& out, bool json) {
  const train::Experiment experiment = arguments.source.Load();
  const transport::Launch launch = transport::DetectLaunch();
  const double deadline =
      std::min(experiment.parallel.deadline_seconds, kMostPatience);
  doctor::JobHealthOptions options{
      .folder = campaign::ResultsFolder(experiment, out),
      .deadline_seconds = deadline,
      .node = doctor::NodeName(),
      .commit = GetBuildInfo().commit};
  options.needs = doctor::NeedsOf(experiment, options.folder, launch.processes);
  transport::Link* link = nullptr;
  if (launch.processes > 1) {
    link = &transport::JoinMpiJob({.deadline_seconds = deadline});
  }
  const JobHealth job = doctor::ExamineJob(options, link);
  const ExitCode code = job.healthy() ? ExitCode::kPass : ExitCode::kFail;
  const std::vector<doctor::SickNode> sick = doctor::SickNodesToName(job);
  if (campaign::SpeaksForTheJob()) {
    if (json) {
      Json object = doctor::JobHealthJson(job);
      object["exit_code"] = static_cast<int>(code);
      PrintJson(object);
    } else {
      PrintTable(job, options.needs);
    }
    std::fflush(stdout);
  }
  // The list also has what process 0 says of this node, which may have lost
  // process 0.
  for (const doctor::SickNode& node : sick) {
    std::fputs(fmt::format("sick: {}: {}\n", Printable(node.node),
                           Printable(node.reason))
                   .c_str(),
               stderr);
  }
  AppendToSickFile(arguments.sick_file, sick);
  if (job.hangs) {
    // MPI_Finalize would wait for the process that hangs.
    transport::EndJob("a process of the job does not answer",
                      static_cast<int>(code));
  }
  return code;
}

}  // namespace isoloss::cli
