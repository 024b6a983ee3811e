#include "isoloss/campaign/run_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/system/json_file.h"
#include "isoloss/system/output_file.h"

namespace isoloss::campaign {
namespace {

namespace fs = std::filesystem;
using document::Json;

constexpr const char* kShape =
    R"({"folder": "s", "on": "s", "runs": [{"name": "s", "file": "s",
        "thread_seconds": "n"}]})";

/// Names must be plain, since scripts have lists of them with commas.
bool IsPlain(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name.front() != '-' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') ||
                  std::string_view("._-/").find(c) != std::string_view::npos;
         });
}

/// Returns whether a path stays below its folder.
bool StaysBelow(const fs::path& file) {
  return file.is_relative() && !file.empty() &&
         std::ranges::none_of(
             file, [](const fs::path& part) { return part == ".."; });
}

ListedRun RunOf(const Json& json) {
  return {.name = json["name"].get<std::string>(),
          .file = json["file"].get<std::string>(),
          .thread_seconds = json["thread_seconds"].is_null()
                                ? 0.0
                                : json["thread_seconds"].get<double>()};
}

/// Says what is wrong with a run that a file lists; "" if nothing is.
std::string FaultOf(const ListedRun& run, std::set<std::string>& names) {
  if (!IsPlain(run.name)) {
    return "its name must be of letters, digits, '.', '-', '_' and '/'";
  }
  if (!names.insert(run.name).second) return "it occurs twice";
  if (!StaysBelow(run.file)) return "its file lies outside of the folder";
  if (run.thread_seconds < 0) return "its time is negative";
  return "";
}

}  // namespace

bool RunList::IsFinished(const ListedRun& run) const {
  std::error_code error;
  return fs::exists(folder / run.file, error);
}

void WriteRunList(const RunList& list, const fs::path& file) {
  if (list.runs.size() > kMostListedRuns) {
    ThrowError(ErrorKind::kConfig,
               "{}: {} runs were planned, but a list has at most {}. Divide "
               "the experiment into several.",
               file.string(), list.runs.size(), kMostListedRuns);
  }
  system::CheckOutput(
      file, {}, "list of runs",
      [](const fs::path& there) {
        ReadRunList(there);
        return true;
      },
      "--list-runs");
  Json runs = Json::array();
  for (const ListedRun& run : list.runs) {
    runs.push_back({{"name", run.name},
                    {"file", run.file.string()},
                    {"thread_seconds", run.thread_seconds}});
  }
  const Json json{
      {"folder", fs::absolute(list.folder).lexically_normal().string()},
      {"on", list.on},
      {"runs", std::move(runs)}};
  WriteFileAtomically(
      file, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

RunList ReadRunList(const fs::path& file) {
  const system::JsonFile read(file, "list of runs");
  read.Check(kShape);
  RunList list{.folder = read.json()["folder"].get<std::string>(),
               .runs = {},
               .on = read.json()["on"].get<std::string>()};
  std::set<std::string> names;
  for (const Json& json : read.json()["runs"]) {
    list.runs.push_back(RunOf(json));
    const std::string fault = FaultOf(list.runs.back(), names);
    if (fault.empty()) continue;
    ThrowError(ErrorKind::kFormat,
               "{}: run `{}` of the list: {}. Write the list again with "
               "--list-runs.",
               file.string(), Printable(list.runs.back().name), fault);
  }
  return list;
}

bool RunChoice::Has(const std::string& name) const {
  return all() || std::ranges::count(names_, name) > 0;
}

void RunChoice::Check(const std::vector<std::string>& known) const {
  for (const std::string& name : names_) {
    if (std::ranges::count(known, name) > 0) continue;
    ThrowError(ErrorKind::kConfig,
               "--only {}: it is none of the {} runs that are planned, of "
               "which the first is {}.{} Give names that --list-runs writes.",
               name, known.size(), known.empty() ? "none" : known.front(),
               DidYouMean(name, known));
  }
}

void RunChoice::Keep(std::vector<train::Run>& runs) const {
  std::vector<std::string> known;
  for (const train::Run& run : runs) known.push_back(run.Name());
  Check(known);
  std::erase_if(runs, [&](const train::Run& run) { return !Has(run.Name()); });
}

RunList PlannedFiles(const std::vector<train::Run>& runs,
                     const fs::path& folder) {
  RunList list{.folder = folder, .runs = {}};
  for (const train::Run& run : runs) {
    list.runs.push_back(
        {.name = run.Name(), .file = runlog::RunPaths{"", run.Name()}.Log()});
  }
  return list;
}

RunList ListRuns(const train::Experiment& experiment,
                 const std::vector<train::Run>& runs, const fs::path& folder) {
  RunList list = PlannedFiles(runs, folder);
  list.on = experiment.parallel.on;
  if (!device::IsHere(list.on)) return list;
  const ArmRates rates = MeasureArms(experiment, runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    list.runs[i].thread_seconds = ThreadSeconds(experiment, runs[i], rates);
  }
  return list;
}

}  // namespace isoloss::campaign
