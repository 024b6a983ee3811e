#include "isoloss/sweeps/slurm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <sstream>
#include <string_view>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/text_file.h"
#include "isoloss/sweeps/scripts.h"
#include "isoloss/system/child_process.h"
#include "isoloss/system/interrupt.h"

namespace isoloss::sweeps {
namespace {

namespace fs = std::filesystem;

/// A call is one command line of sbatch.
struct Call {
  std::vector<std::string> options;
  std::vector<std::string> script;  ///< with its arguments
};

std::vector<std::string> WordsOf(const Call& call, const std::string& program) {
  std::vector<std::string> words = {program, "--parsable"};
  words.insert(words.end(), call.options.begin(), call.options.end());
  words.insert(words.end(), call.script.begin(), call.script.end());
  return words;
}

Call ArrayCall(const Sweep& sweep) {
  std::string array = fmt::format("--array=1-{}", sweep.elements.size());
  if (sweep.request.side_by_side > 0) {
    array += fmt::format("%{}", sweep.request.side_by_side);
  }
  return {.options = {array, fmt::format("--output={}/element-%a.txt",
                                         sweep.File(kLogFolder).string())},
          .script = {sweep.File("array.sh").string()}};
}

Call JudgeCall(const Sweep& sweep, const std::string& after) {
  Call call{.options = {fmt::format("--output={}/judge.txt",
                                    sweep.File(kLogFolder).string())},
            .script = {sweep.File("judge.sh").string()}};
  if (!after.empty()) {
    call.options.push_back("--dependency=afterany:" + after);
  }
  return call;
}

bool IsJobId(const std::string& text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// Returns a program's message as one line.
std::string OneLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) {
    text.pop_back();
  }
  std::ranges::replace(text, '\n', ' ');
  return text;
}

/// Returns whether a job has not ended. Slurm calls the id of a job that it has
/// forgotten invalid.
bool IsLive(const fs::path& squeue, const std::string& id) {
  constexpr std::chrono::seconds kLimit{60};
  const system::ChildResult result = system::RunChild(
      {squeue.string(), "--noheader", "--jobs", id}, {}, kLimit,
      system::InterruptFlag(), {.output_to_errors = true});
  if (result.ended && result.exit_code == 0) return !result.errors.empty();
  if (result.errors.find("Invalid job id") != std::string::npos) return false;
  ThrowError(ErrorKind::kConfig,
             "submit: squeue does not say whether job {} of this sweep has "
             "ended: {}. Try again once it answers.",
             id, Printable(OneLine(result.errors)));
}

std::string Submitted(const Call& call) {
  const fs::path sbatch = system::FindProgram("sbatch");
  if (sbatch.empty()) {
    ThrowError(ErrorKind::kConfig,
               "submit: sbatch is not in PATH, but --engine slurm needs it. "
               "Add Slurm's folder to PATH, or give --engine local or make.");
  }
  constexpr std::chrono::seconds kLimit{120};
  const system::ChildResult result =
      system::RunChild(WordsOf(call, sbatch.string()), {}, kLimit,
                       system::InterruptFlag(), {.output_to_errors = true});
  // The id reads "12" or "12;cluster", perhaps after warnings.
  std::istringstream lines(result.errors);
  std::string id;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) id = line.substr(0, line.find(';'));
  }
  if (result.ended && result.exit_code == 0 && IsJobId(id)) return id;
  ThrowError(ErrorKind::kConfig,
             "submit: sbatch refused {}: {}. Correct it with --sbatch, or ask "
             "`scontrol show config`.",
             Quoted(call.script), Printable(OneLine(result.errors)));
}

std::string JoinedIds(const std::vector<std::string>& ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

/// Records a job that has been started, whatever comes after it.
void Remember(const Sweep& sweep, const std::vector<std::string>& ids) {
  WriteFileAtomically(sweep.File(kJobsFile),
                      fmt::format("{}\n", fmt::join(ids, "\n")));
}

}  // namespace

std::string SbatchText(const Sweep& sweep) {
  std::vector<std::string> lines;
  std::string after;
  if (!sweep.elements.empty()) {
    lines.push_back(Quoted(WordsOf(ArrayCall(sweep), "sbatch")));
    after = "JOB1";
  }
  if (!sweep.judge.empty()) {
    lines.push_back(Quoted(WordsOf(JudgeCall(sweep, after), "sbatch")));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::optional<size_t> MostElements() {
  const fs::path scontrol = system::FindProgram("scontrol");
  if (scontrol.empty()) return std::nullopt;
  std::istringstream lines(
      system::OutputOf({scontrol.string(), "show", "config"}));
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kName = "MaxArraySize";
    if (!line.starts_with(kName)) continue;
    const size_t begin = line.find_first_of("0123456789");
    if (begin == std::string::npos) break;
    size_t size = 0;
    std::from_chars(line.data() + begin, line.data() + line.size(), size);
    if (size < 2) break;
    return size - 1;
  }
  return std::nullopt;
}

std::vector<std::string> LiveJobs(const Sweep& sweep) {
  const fs::path file = sweep.File(kJobsFile);
  const fs::path squeue = system::FindProgram("squeue");
  if (squeue.empty() || !fs::exists(file)) return {};
  constexpr size_t kMostBytes = 4096;
  std::istringstream ids(ReadTextFile(file, "Remove it.", kMostBytes));
  std::vector<std::string> live;
  for (std::string id; std::getline(ids, id);) {
    if (IsJobId(id) && IsLive(squeue, id)) live.push_back(id);
  }
  return live;
}

SlurmJobs StartOnSlurm(const Sweep& sweep) {
  SlurmJobs jobs;
  std::vector<std::string> ids;
  try {
    if (!sweep.elements.empty()) {
      jobs.array = Submitted(ArrayCall(sweep));
      ids.push_back(jobs.array);
      Remember(sweep, ids);
    }
    if (!sweep.judge.empty()) {
      jobs.judge = Submitted(JudgeCall(sweep, jobs.array));
      ids.push_back(jobs.judge);
      Remember(sweep, ids);
    }
  } catch (const Error& error) {
    if (ids.empty()) throw;
    system::OutputOf({system::FindProgram("scancel").string(), JoinedIds(ids)});
    ThrowError(error.kind(),
               "{} What had been submitted (job {}) is cancelled.",
               error.what(), JoinedIds(ids));
  }
  return jobs;
}

}  // namespace isoloss::sweeps
