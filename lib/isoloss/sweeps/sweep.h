// Plans a command whose runs are made by many processes, on this machine or by
// a batch system, and judged by one.
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

/// A launcher says how the processes of one run find each other under Slurm.
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

/// Returns the commands that can be divided, named as on a command line.
std::vector<std::string> Commands();

struct Sweep {
  SweepRequest request;
  campaign::RunList list;  ///< all runs, finished or not
  std::vector<Element> elements;
  std::filesystem::path program;  ///< this one
  std::filesystem::path start;    ///< folder in which all processes start
  /// These are arguments of `program` for an element, and its runs' names
  /// follow.
  std::vector<std::string> make;
  std::vector<std::string> judge;  ///< empty: nothing is judged

  /// The folder holds all files of the sweep but those of its runs.
  std::filesystem::path folder() const {
    return list.folder / campaign::kSweepFolder;
  }
  std::filesystem::path File(const char* name) const { return folder() / name; }
  size_t finished() const;
  /// Returns the time of the longest element on one thread; 0 if there is
  /// none.
  double LongestSeconds() const;
};

// These files lie in Sweep::folder.
using campaign::kRunsFile;
inline constexpr const char* kElementsFile = "elements.txt";
inline constexpr const char* kJobsFile = "jobs.txt";
inline constexpr const char* kLogFolder = "log";
inline constexpr const char* kStateFolder = "state";  ///< of job.sh

/// Has the command itself list its runs, in a process of its own, and divides
/// the runs that have not finished.
/// Errors   ConfigError if the request can't be met, or as the command says;
///          as campaign::ReadRunList.
Sweep PlanSweep(const SweepRequest& request);

/// Says for people which runs the sweep has and what they take.
std::string DescribeSweep(const Sweep& sweep);

struct Script {
  std::string name;  ///< in Sweep::folder
  std::string text;
  bool executable = true;
};

/// Returns all scripts that the engine gets.
std::vector<Script> ScriptsOf(const Sweep& sweep);

/// Returns the command that a user would type to start the scripts.
std::string StartText(const Sweep& sweep);

/// Makes the sweep's folder and locks it, until this process and all that get
/// the lock from it (HandOn) have ended.
/// Errors   ConfigError if another process holds the lock; IoError.
Descriptor LockSweep(const Sweep& sweep);
/// Gives the lock also to the program that this process becomes or starts.
void HandOn(const Descriptor& lock);

/// Writes runs.json, elements.txt and the scripts.
/// Errors   IoError; ConfigError if the folder holds other files.
void WriteSweep(const Sweep& sweep);

}  // namespace isoloss::sweeps
