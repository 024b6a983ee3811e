// A command whose runs are made by many processes, on this machine or by a
// batch system, and judged by one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/base/files.h"
#include "isoloss/campaign/run_list.h"
#include "isoloss/campaign/watched_sweep.h"
#include "isoloss/sweeps/elements.h"

namespace isoloss::sweeps {

/// An engine starts the processes, and none is part of this program.
enum class Engine {
  kSlurm,  ///< a job array of sbatch
  kLocal,  ///< xargs
  kMake,   ///< make
};

/// How the processes of one run find each other under Slurm.
enum class Launcher { kPmi2, kPmix, kMpirun };

struct SweepRequest {
  std::string command = "verify";      ///< one of Commands()
  std::string experiment;              ///< file
  std::vector<std::string> arguments;  ///< of the command, behind these
  Engine engine = Engine::kSlurm;
  Division division;
  int side_by_side = 0;  ///< elements; 0: as many as there is room for
  int processes = 1;     ///< at most, that share a run
  int cpus = 1;          ///< of each process
  Launcher launcher = Launcher::kPmi2;
  int minutes = 0;    ///< of an element; 0: by the predicted time
  int restarts = 20;  ///< of an element that something killed
  std::vector<std::string> sbatch = {};  ///< options of sbatch, "--partition=p"
  std::vector<std::string> setup = {};  ///< lines of each script, "module load"
  bool dry_run = false;
};

/// Names of the commands that can be divided, as a command line has them.
std::vector<std::string> Commands();

struct Sweep {
  SweepRequest request;
  campaign::RunList list;  ///< all runs, finished or not
  std::vector<Element> elements;
  std::filesystem::path program;  ///< this one
  std::filesystem::path start;    ///< folder in which all processes start
  /// Arguments of `program`: of an element, which its runs' names follow.
  std::vector<std::string> make;
  std::vector<std::string> judge;  ///< empty: nothing is judged

  /// The folder of all that belongs to the sweep but its runs.
  std::filesystem::path folder() const {
    return list.folder / campaign::kSweepFolder;
  }
  std::filesystem::path File(const char* name) const { return folder() / name; }
  size_t finished() const;
  /// The time of the longest element on one thread; 0 if there is none.
  double LongestSeconds() const;
};

// Files in Sweep::folder.
using campaign::kRunsFile;
inline constexpr const char* kElementsFile = "elements.txt";
inline constexpr const char* kJobsFile = "jobs.txt";
inline constexpr const char* kLogFolder = "log";
inline constexpr const char* kStateFolder = "state";  ///< of job.sh

/// Has the command itself list its runs, in a process of its own, and divides
/// those that have not finished.
/// Errors   ConfigError if the request can't be met, or as the command says;
///          as campaign::ReadRunList.
Sweep PlanSweep(const SweepRequest& request);

/// Says for people what the sweep consists of and takes.
std::string DescribeSweep(const Sweep& sweep);

struct Script {
  std::string name;  ///< in Sweep::folder
  std::string text;
  bool executable = true;
};

/// All that the engine gets.
std::vector<Script> ScriptsOf(const Sweep& sweep);

/// The command that a user would type to start them.
std::string StartText(const Sweep& sweep);

/// Makes the sweep's folder, and has it for this process and those that get the
/// lock from it (HandOn), until all have ended.
/// Errors   ConfigError if another process has it; IoError.
Descriptor LockSweep(const Sweep& sweep);
/// Gives the lock to what this process becomes or starts, too.
void HandOn(const Descriptor& lock);

/// Writes runs.json, elements.txt and the scripts.
/// Errors   IoError; ConfigError if the folder holds other files.
void WriteSweep(const Sweep& sweep);

}  // namespace isoloss::sweeps
