// The health check of a job before its first step: every process examines its
// own machine, and all of them their links. Whatever is sick is named.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "isoloss/campaign/node_health.h"
#include "isoloss/campaign/peer_health.h"
#include "isoloss/report/node_table.h"
#include "isoloss/train/experiment.h"
#include "isoloss/transport/link.h"

namespace isoloss::campaign {

struct JobHealthOptions {
  std::filesystem::path folder;  ///< where results will go
  JobNeeds needs = {};
  /// No wait for another process is longer.
  double deadline_seconds = 20;
  /// As a script would name this machine to a scheduler.
  std::string node = {};
  std::string commit = {};  ///< of the program
  /// In place of ExamineNumerics and WriteAndReadBack.
  std::function<NumericsHealth()> examine_numerics = {};
  std::function<DiskHealth()> examine_disk = {};
};

/// One process: what it has measured, and what is said of it.
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
  /// By process. Those of which this process knows nothing are not `reported`:
  /// only process 0 learns of all.
  std::vector<ProcessHealth> processes = {};
  int process = 0;  ///< this one
  /// Some process does not answer, so that the job must be ended and can't end
  /// by itself.
  bool hangs = false;
  /// Problems of processes that this one does not hear of.
  bool sick_elsewhere = false;
  double seconds = 0;

  bool healthy() const;
};

/// "n1" of SLURMD_NODENAME, by which Slurm excludes it, or else the name of the
/// host.
std::string NodeName();

/// What this experiment takes in `folder` of a job of so many processes: of
/// memory at least, of disk at most, less what the folder holds already.
JobNeeds NeedsOf(const train::Experiment& experiment,
                 const std::filesystem::path& folder, int processes);

/// Takes about eight seconds: two for each of arithmetic, memory, disk, and
/// links; longer if one hangs. `link` leads to the other processes; null:
/// there are none.
JobHealth ExamineJob(const JobHealthOptions& options, transport::Link* link);

/// Adds to `processes` what only their comparison shows. A problem: the build
/// differs from most, the clock is off, peers complain. A note: a rate is a
/// tenth of the median of at least three.
void CompareProcesses(std::vector<ProcessHealth>& processes);

/// "n1: process 1: its clock is ...": of each sick node that this process
/// speaks of: process 0 of all, another one of itself and of process 0 if that
/// does not answer.
struct SickNode {
  std::string node;
  std::string reason;
};
std::vector<SickNode> SickNodesToName(const JobHealth& job);

std::vector<report::NodeRow> RowsOf(const JobHealth& job);
nlohmann::ordered_json JobHealthJson(const JobHealth& job);

}  // namespace isoloss::campaign
