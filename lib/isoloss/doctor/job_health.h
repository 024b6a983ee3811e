// Checks the health of a job before its first step: every process examines its
// own machine, and all of them their links. The check names every process that
// is sick.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "isoloss/doctor/node_health.h"
#include "isoloss/doctor/peer_health.h"
#include "isoloss/report/node_table.h"
#include "isoloss/train/experiment.h"
#include "isoloss/transport/link.h"

namespace isoloss::doctor {

struct JobHealthOptions {
  std::filesystem::path folder;  ///< where results will go
  JobNeeds needs = {};
  /// No wait for a peer takes longer.
  double deadline_seconds = 20;
  /// A script would give a scheduler this name of the machine.
  std::string node = {};
  std::string commit = {};  ///< of the program
  /// If set, these functions replace ExamineNumerics and WriteAndReadBack.
  std::function<NumericsHealth()> examine_numerics = {};
  std::function<DiskHealth()> examine_disk = {};
};

/// Holds the measurements of one process and the judgement on them.
struct ProcessHealth {
  int process = 0;
  std::string node = {};
  std::string commit = {};
  bool reported = false;  ///< else all that follows but `problems` is empty
  NodeHealth health = {};
  std::vector<PeerLink> links = {};
  std::vector<std::string> problems = {};
  std::vector<std::string> notes = {};
};

struct JobHealth {
  /// Holds all processes in order. Processes of which this one knows nothing
  /// are not `reported`: only process 0 learns of all.
  std::vector<ProcessHealth> processes = {};
  int process = 0;  ///< this one
  /// True if some process does not answer. Then the job can't end by itself and
  /// must be ended.
  bool hangs = false;
  /// True if processes have problems of which this process does not hear.
  bool sick_elsewhere = false;
  double seconds = 0;

  bool healthy() const;
};

/// Returns SLURMD_NODENAME, such as "n1", by which Slurm excludes the node, or
/// else the name of the host.
std::string NodeName();

/// Returns what this experiment needs in `folder` in a job of `processes`:
/// memory at least, disk at most. Data that the folder holds already are
/// subtracted.
JobNeeds NeedsOf(const train::Experiment& experiment,
                 const std::filesystem::path& folder, int processes);

/// Takes about eight seconds: two for each of arithmetic, memory, disk, and
/// links; longer if one hangs. `link` leads to the other processes; null means
/// that there are none.
JobHealth ExamineJob(const JobHealthOptions& options, transport::Link* link);

/// Adds to `processes` what only their comparison shows. It is a problem if the
/// build differs from most, the clock is off, or peers complain. It is a note
/// if a rate is below a tenth of the median of at least three.
void CompareProcesses(std::vector<ProcessHealth>& processes);

/// Describes a sick node, such as "n1: process 1: its clock is ...". Process 0
/// names all sick nodes. Another process names its own, and that of process 0
/// if that one does not answer.
struct SickNode {
  std::string node;
  std::string reason;
};
std::vector<SickNode> SickNodesToName(const JobHealth& job);

std::vector<report::NodeRow> RowsOf(const JobHealth& job);
nlohmann::ordered_json JobHealthJson(const JobHealth& job);

}  // namespace isoloss::doctor
