#include "isoloss/sweeps/sweep.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/temporary_folder.h"
#include "isoloss/device/devices.h"
#include "isoloss/report/live_view.h"
#include "isoloss/sweeps/scripts.h"
#include "isoloss/system/child_process.h"
#include "isoloss/system/interrupt.h"

namespace isoloss::sweeps {
namespace {

namespace fs = std::filesystem;

/// The runs of such a command can be divided.
struct Divisible {
  const char* words;
  const char* below = "";  ///< the command that it stands below
  /// These are options of a process that makes runs, and of the one that
  /// judges.
  std::vector<std::string> make = {};
  std::vector<std::string> judge = {};
  bool judges = true;
  bool prepares = false;     ///< its list does, unless it is given --dry-run
  bool shares_runs = false;  ///< among processes
  bool has_journals = true;  ///< while a run goes on
};

const std::vector<Divisible>& Table() {
  static const std::vector<Divisible> table = {
      {.words = "verify",
       .make = {"--resume"},
       .judge = {"--resume", "--no-train"},
       .shares_runs = true},
      {.words = "run",
       .make = {"--resume"},
       .judges = false,
       .shares_runs = true},
      {.words = "ladder",
       .below = "study",
       .judge = {"--no-train"},
       .prepares = true},
      {.words = "stress",
       .below = "study",
       .judge = {"--no-train"},
       .prepares = true},
      // It chooses a recipe by the runs, and trains that one.
      {.words = "sites", .below = "study", .prepares = true},
      {.words = "ensemble build", .below = "lab", .has_journals = false},
  };
  return table;
}

const Divisible& DivisibleOf(const std::string& command) {
  for (const Divisible& divisible : Table()) {
    if (command == divisible.words) return divisible;
  }
  ThrowError(ErrorKind::kConfig,
             "submit: the runs of `{}` can't be divided. Give one of: {}.",
             command, fmt::join(Commands(), ", "));
}

/// Refuses options that belong to submit, or make no sense for parts of a
/// command.
void CheckArguments(const SweepRequest& request) {
  constexpr const char* kRefused[] = {
      "--only",   "--list-runs", "--dry-run",     "--part",       "--no-train",
      "--resume", "--restart",   "--abort-early", "--stop-after", "--json"};
  for (const std::string& argument : request.arguments) {
    const std::string option = argument.substr(0, argument.find('='));
    if (std::ranges::count(kRefused, option) == 0) continue;
    ThrowError(ErrorKind::kConfig,
               "submit: {} was given to {}, but the processes of a sweep get "
               "it, or its contrary, from `isoloss submit`. Leave it out.",
               option, request.command);
  }
  const std::vector<std::string>& given = request.arguments;
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].starts_with("--seeds=+") &&
        (given[i] != "--seeds" || i + 1 == given.size() ||
         !given[i + 1].starts_with('+'))) {
      continue;
    }
    ThrowError(ErrorKind::kConfig,
               "submit: {}{} counts from what the folder holds, which changes "
               "while the sweep goes on. Give the seeds as a list, such as "
               "1,2,9.",
               given[i], given[i] == "--seeds" ? " " + given[i + 1] : "");
  }
}

/// Refuses line ends: each entry is a line of a script, and text after a line
/// end would be a command.
void CheckLines(const char* option, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const size_t end = line.find_first_of(std::string_view("\n\r\0", 3));
    if (end == line.npos) continue;
    ThrowError(ErrorKind::kConfig,
               "submit: {} `{}` has a line end at character {}, but it becomes "
               "one line of each script. Leave the line end out, or repeat {}.",
               option, line, end + 1, option);
  }
}

/// Refuses options that only Slurm, or only some commands, can obey.
void CheckEngine(const SweepRequest& request) {
  CheckLines("--sbatch", request.sbatch);
  CheckLines("--setup", request.setup);
  for (const std::string& option : request.sbatch) {
    if (option.starts_with('-')) continue;
    ThrowError(ErrorKind::kConfig,
               "submit: --sbatch {} is no option of sbatch, as it begins with "
               "no dash. Give it as --sbatch=--partition=cpu.",
               option);
  }
  if (request.engine != Engine::kSlurm &&
      (request.minutes > 0 || !request.sbatch.empty())) {
    ThrowError(ErrorKind::kConfig,
               "submit: --minutes and --sbatch are of Slurm, but --engine is "
               "another one. Leave them out, or give --engine slurm.");
  }
  if (request.processes > 1 && !DivisibleOf(request.command).shares_runs) {
    ThrowError(ErrorKind::kConfig,
               "submit: --processes is {}, but each run of {} is made by one "
               "process. Leave it out.",
               request.processes, request.command);
  }
  if (request.processes > 1 && request.engine != Engine::kSlurm) {
    ThrowError(ErrorKind::kConfig,
               "submit: --processes is {}, but only Slurm starts several "
               "processes for a run here. Give --engine slurm, or start the "
               "command by mpirun.",
               request.processes);
  }
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(std::move(word));
  return words;
}

std::vector<std::string> Joined(std::vector<std::vector<std::string>> parts) {
  std::vector<std::string> all;
  for (std::vector<std::string>& part : parts) {
    std::ranges::move(part, std::back_inserter(all));
  }
  return all;
}

[[noreturn]] void ThrowWhatItSaid(const std::string& command,
                                  const system::ChildResult& result) {
  std::string said = result.errors;
  while (!said.empty() && said.back() == '\n') said.pop_back();
  for (size_t at = 0; (at = said.find('\n', at)) != said.npos; ++at) {
    said.insert(at + 1, "  ");  // its lines stay lines
  }
  ThrowError(ErrorKind::kConfig,
             "submit: `isoloss {}` could not list its runs; it ended with {}: "
             "{}",
             command, result.exit_code,
             said.empty() ? "it said nothing." : said);
}

campaign::RunList ListOf(const SweepRequest& request,
                         const std::vector<std::string>& command) {
  const TemporaryFolder temporary;
  const fs::path file = temporary.path() / kRunsFile;
  const Divisible& divisible = DivisibleOf(request.command);
  std::vector<std::string> listing = Joined(
      {{system::ThisProgram().string()}, command, {"--list-runs", file}});
  if (divisible.prepares && request.dry_run) listing.push_back("--dry-run");
  for (const std::string& option : divisible.make) listing.push_back(option);
  constexpr std::chrono::seconds kLimit{600};
  const system::ChildResult result =
      system::RunChild(listing, {}, kLimit, system::InterruptFlag(), {});
  if (!result.ended || result.exit_code != 0) {
    ThrowWhatItSaid(request.command, result);
  }
  return campaign::ReadRunList(file);
}

std::vector<std::string> ResultsOf(const Sweep& sweep, const Element& element) {
  std::vector<std::string> results;
  for (const fs::path& file : element.files) {
    results.push_back((sweep.list.folder / file).string());
  }
  return results;
}

/// Returns the files that show whether an element still works; a dash if its
/// runs have none.
std::vector<std::string> JournalsOf(const Sweep& sweep,
                                    const Element& element) {
  if (!DivisibleOf(sweep.request.command).has_journals) return {"-"};
  std::vector<std::string> journals;
  for (const fs::path& file : element.files) {
    fs::path journal = sweep.list.folder / file;
    journals.push_back(journal.replace_extension(".journal").string());
  }
  return journals;
}

}  // namespace

std::vector<std::string> Commands() {
  std::vector<std::string> names;
  for (const Divisible& divisible : Table())
    names.emplace_back(divisible.words);
  return names;
}

size_t Sweep::finished() const {
  return static_cast<size_t>(std::ranges::count_if(
      list.runs,
      [&](const campaign::ListedRun& run) { return list.IsFinished(run); }));
}

double Sweep::LongestSeconds() const {
  double longest = 0;
  for (const Element& element : elements) {
    longest = std::max(longest, element.thread_seconds);
  }
  return longest;
}

Sweep PlanSweep(const SweepRequest& request) {
  const Divisible& divisible = DivisibleOf(request.command);
  CheckArguments(request);
  CheckEngine(request);
  const std::vector<std::string> command = Joined({Words(divisible.below),
                                                   Words(request.command),
                                                   {request.experiment},
                                                   request.arguments});
  Sweep sweep{.request = request,
              .list = ListOf(request, command),
              .elements = {},
              .program = system::ThisProgram(),
              .start = fs::current_path(),
              .make = Joined({command, divisible.make}),
              .judge = {}};
  if (request.engine == Engine::kSlurm && request.minutes == 0 &&
      !device::IsHere(sweep.list.on)) {
    ThrowError(ErrorKind::kConfig,
               "submit: runs are to compute on `{}`, but this machine has none "
               "to tell how long they take. Give --minutes.",
               sweep.list.on);
  }
  if (request.processes > 1 && sweep.list.on != device::kCpu) {
    ThrowError(ErrorKind::kConfig,
               "submit: --processes is {}, but a run on `{}` has one process. "
               "Leave it out.",
               request.processes, sweep.list.on);
  }
  if (request.processes > 1) {
    sweep.make.insert(sweep.make.end(), {"--set", "parallel.transport=mpi"});
  }
  sweep.make.emplace_back("--only");
  if (divisible.judges) sweep.judge = Joined({command, divisible.judge});
  sweep.elements = Divide(sweep.list, request.division);
  return sweep;
}

std::string DescribeSweep(const Sweep& sweep) {
  // Each look asks a shared file system for every run.
  const size_t finished = sweep.finished();
  double all = 0;
  double left = 0;
  for (const campaign::ListedRun& run : sweep.list.runs) {
    all += run.thread_seconds;
  }
  for (const Element& element : sweep.elements) {
    left += element.thread_seconds;
  }
  std::string text = fmt::format(
      "{} runs in {}: {} finished, {} to be made by {} processes.",
      sweep.list.runs.size(), Printable(sweep.list.folder.string()), finished,
      sweep.list.runs.size() - finished, sweep.elements.size());
  if (all > 0) {
    text += fmt::format(
        " On one processor they would take {} of {}, and the longest process "
        "{}.",
        report::DurationText(left), report::DurationText(all),
        report::DurationText(sweep.LongestSeconds()));
  }
  return text + "\n";
}

Descriptor LockSweep(const Sweep& sweep) {
  std::error_code error;  // OpenOwnFile says what can't be made
  fs::create_directories(sweep.folder(), error);
  const fs::path file = sweep.File(".lock");
  Descriptor lock = OpenOwnFile(file, "lock");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) ThrowErrno(file, "lock");
  ThrowError(ErrorKind::kConfig,
             "{}: another `isoloss submit`, or a process that one has started, "
             "is at work there. Wait until it has ended, or end it.",
             sweep.list.folder.string());
}

void HandOn(const Descriptor& lock) { ::fcntl(lock.get(), F_SETFD, 0); }

void WriteSweep(const Sweep& sweep) {
  const std::vector<Script> scripts = ScriptsOf(sweep);  // may be refused
  std::error_code error;
  fs::create_directories(sweep.File(kLogFolder), error);
  if (error) {
    ThrowError(ErrorKind::kIo,
               "{}: the folder can't be made: {}. Choose another with --out.",
               sweep.File(kLogFolder).string(), error.message());
  }
  // Faults of an earlier sweep don't count.
  fs::remove_all(sweep.File(kStateFolder), error);
  if (error) {
    ThrowError(ErrorKind::kIo,
               "{}: what an earlier sweep has left can't be removed: {}. "
               "Remove it.",
               sweep.File(kStateFolder).string(), error.message());
  }
  campaign::WriteRunList(sweep.list, sweep.File(kRunsFile));
  std::string lines;
  for (const Element& element : sweep.elements) {
    lines += fmt::format("{}\t{}\t{}\n", fmt::join(element.runs, ","),
                         fmt::join(JournalsOf(sweep, element), " "),
                         fmt::join(ResultsOf(sweep, element), " "));
  }
  WriteFileAtomically(sweep.File(kElementsFile), lines);
  for (const Script& script : scripts) {
    const fs::path file = sweep.File(script.name.c_str());
    WriteFileAtomically(file, script.text);
    if (script.executable) {
      fs::permissions(file,
                      fs::perms::owner_exec | fs::perms::group_exec |
                          fs::perms::others_exec,
                      fs::perm_options::add);
    }
  }
}

}  // namespace isoloss::sweeps
