#include "isoloss/doctor/job_health.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "isoloss/doctor/job_health_json.h"
#include "isoloss/stats/summary.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/runner.h"

namespace isoloss::doctor {
namespace {

using Steady = std::chrono::steady_clock;

/// A file system that serves many nodes may take long to make a file durable.
/// If it takes longer than this, it would hold up every checkpoint.
constexpr double kMostDiskSeconds = 10;
constexpr double kLinkSeconds = 2;

NodeHealth ExamineNode(const JobHealthOptions& options, int of_this_node) {
  NodeHealth health;
  health.numerics =
      options.examine_numerics ? options.examine_numerics() : ExamineNumerics();
  health.memory = ExamineMemory(options.needs, of_this_node);
  // It is a copy, since the thread may outlive this call.
  std::function<DiskHealth()> examine_disk = options.examine_disk;
  if (!examine_disk) {
    examine_disk = [folder = options.folder, needs = options.needs] {
      return WriteAndReadBack(folder, needs);
    };
  }
  health.disk =
      ExamineDiskWithin(std::chrono::duration<double>(std::min(
                            kMostDiskSeconds, options.deadline_seconds / 2)),
                        std::move(examine_disk));
  return health;
}

void AddProblemsOf(ProcessHealth& process) {
  const NodeHealth& health = process.health;
  for (const std::string& problem :
       {health.numerics.problem, health.memory.problem, health.disk.problem}) {
    if (!problem.empty()) process.problems.push_back(problem);
  }
}

/// The process `by` accuses the process `of`, by what it has seen of their
/// link.
struct Complaint {
  int by;
  int of;
  std::string what;
};

/// Blames as few processes as explain all complaints. Each round blames the
/// process that takes part in most complaints; among equals, the one that is
/// accused most often.
void BlameForLinks(std::vector<ProcessHealth>& processes,
                   std::vector<Complaint> complaints) {
  while (!complaints.empty()) {
    std::map<int, std::pair<int, int>> counts;  // in all, accused
    for (const Complaint& complaint : complaints) {
      ++counts[complaint.by].first;
      ++counts[complaint.of].first;
      ++counts[complaint.of].second;
    }
    const int guilty = std::ranges::max_element(counts, {}, [](const auto& c) {
                         return c.second;
                       })->first;
    const auto is_about = [&](const Complaint& complaint) {
      return complaint.by == guilty || complaint.of == guilty;
    };
    const auto first = std::ranges::find_if(complaints, is_about);
    const auto count = std::ranges::count_if(complaints, is_about);
    std::string problem = first->what;
    if (count > 1)
      problem +=
          fmt::format(" (and {} more complaints of this kind)", count - 1);
    processes[static_cast<size_t>(guilty)].problems.push_back(problem);
    std::erase_if(complaints, is_about);
  }
}

struct ComparedRate {
  const char* what;
  const char* unit;
  double per_unit;
  double (*of)(const ProcessHealth& process);
};

double SlowestLink(const ProcessHealth& process) {
  double slowest = 0;
  for (const PeerLink& link : process.links) {
    if (link.bytes_per_second > 0 &&
        (slowest == 0 || link.bytes_per_second < slowest)) {
      slowest = link.bytes_per_second;
    }
  }
  return slowest;
}

double FastestLink(const ProcessHealth& process) {
  double fastest = 0;
  for (const PeerLink& link : process.links) {
    fastest = std::max(fastest, link.bytes_per_second);
  }
  return fastest;
}

double LongestWay(const ProcessHealth& process) {
  double longest = 0;
  for (const PeerLink& link : process.links) {
    longest = std::max(longest, link.seconds);
  }
  return longest;
}

/// Only the fastest link of a process is compared. If one process is slow, each
/// peer has one slow link, but all links of the slow process are slow.
constexpr ComparedRate kComparedRates[] = {
    {"memory reads", "GB/s", 1e9,
     [](const ProcessHealth& p) { return p.health.memory.bytes_per_second; }},
    {"disk writes", "MB/s", 1e6,
     [](const ProcessHealth& p) {
       return p.health.disk.write_bytes_per_second;
     }},
    {"disk reads", "MB/s", 1e6,
     [](const ProcessHealth& p) {
       return p.health.disk.read_bytes_per_second;
     }},
    {"links carry", "MB/s", 1e6, &FastestLink},
};

void NoteSlowOnes(std::vector<ProcessHealth>& processes) {
  // The factor is a choice, far above the differences between equal nodes that
  // also serve other jobs. No cluster has confirmed it yet, so the result is a
  // note only.
  constexpr double kTimesSlower = 10;
  constexpr size_t kFewest = 3;  // two do not tell which one is usual
  for (const ComparedRate& rate : kComparedRates) {
    std::vector<double> values;
    for (const ProcessHealth& process : processes) {
      if (const double value = rate.of(process); value > 0) {
        values.push_back(value);
      }
    }
    if (values.size() < kFewest) continue;
    const double median = stats::Median(values);
    for (ProcessHealth& process : processes) {
      const double value = rate.of(process);
      if (value <= 0 || value * kTimesSlower >= median) continue;
      process.notes.push_back(fmt::format(
          "its {} {:.3g} {}, less than a tenth of the median, {:.3g} {}",
          rate.what, value / rate.per_unit, rate.unit, median / rate.per_unit,
          rate.unit));
    }
  }
}

void CompareBuilds(std::vector<ProcessHealth>& processes) {
  std::map<std::string, int> counts;
  for (const ProcessHealth& process : processes) {
    if (process.reported) ++counts[process.commit];
  }
  if (counts.size() < 2) return;
  std::string usual = processes.front().commit;
  for (const auto& [commit, count] : counts) {
    if (count > counts[usual]) usual = commit;
  }
  for (ProcessHealth& process : processes) {
    if (!process.reported || process.commit == usual) continue;
    process.problems.push_back(fmt::format(
        "it has commit {} of the program, but others have {}: their bits may "
        "differ",
        process.commit, usual));
  }
}

void CompareClocks(std::vector<ProcessHealth>& processes) {
  std::vector<std::pair<size_t, double>> ahead;  // of process 0
  std::vector<double> values;
  for (size_t i = 0; i < processes.size(); ++i) {
    if (!processes[i].reported) continue;
    double value = 0;
    if (i > 0) {
      const auto link =
          std::ranges::find(processes[i].links, 0, &PeerLink::peer);
      if (link == processes[i].links.end() || !link->problem.empty()) continue;
      value = -link->clock_ahead;
    }
    ahead.emplace_back(i, value);
    values.push_back(value);
  }
  if (values.empty()) return;
  // If only two report, process 0's clock counts as right, though it may be the
  // wrong one.
  const double usual = values.size() < 3 ? 0 : stats::Median(values);
  for (const auto& [i, value] : ahead) {
    const double off = value - usual;
    if (std::abs(off) <= kMostSecondsOff) continue;
    processes[i].problems.push_back(fmt::format(
        "its clock is {:.3g} s {} {}, but at most {:g} s are allowed",
        std::abs(off), off > 0 ? "ahead of" : "behind",
        values.size() < 3 ? "that of process 0" : "those of most processes",
        kMostSecondsOff));
  }
}

std::vector<Complaint> ComplaintsOf(
    const std::vector<ProcessHealth>& processes) {
  std::vector<Complaint> complaints;
  for (const ProcessHealth& process : processes) {
    for (const PeerLink& link : process.links) {
      if (!link.problem.empty() && link.peer >= 0 &&
          static_cast<size_t>(link.peer) < processes.size()) {
        complaints.push_back({process.process, link.peer, link.problem});
      }
    }
  }
  return complaints;
}

/// In process 0, collects the reports of all processes and judges them.
void Gather(PeerTalk& talk, JobHealth& job) {
  const std::vector<std::string> reports =
      talk.Collect(ProcessToText(job.processes.front()));
  std::vector<Complaint> silent;
  for (int peer = 1; peer < talk.size(); ++peer) {
    ProcessHealth& process = job.processes[static_cast<size_t>(peer)];
    if (!talk.ProblemOf(peer).empty()) {
      silent.push_back({0, peer, talk.ProblemOf(peer)});
    }
    const std::string& text = reports[static_cast<size_t>(peer)];
    if (text.empty()) {
      job.hangs = true;
      continue;
    }
    const std::string node = process.node;
    if (!ProcessFromText(text, process)) {
      process = {.process = peer,
                 .problems = {"its report is none of this program"}};
    }
    process.process = peer;
    process.node = node;
  }
  std::vector<Complaint> complaints = ComplaintsOf(job.processes);
  for (Complaint& complaint : silent) {
    if (std::ranges::none_of(complaints, [&](const Complaint& c) {
          return c.by == 0 && c.of == complaint.of;
        })) {
      complaints.push_back(std::move(complaint));
    }
  }
  BlameForLinks(job.processes, std::move(complaints));
  CompareProcesses(job.processes);
  talk.Conclude(job.healthy() ? "healthy" : job.hangs ? "hangs" : "sick");
}

/// In any process but the first, reports and learns the conclusion.
void ReportToFirst(PeerTalk& talk, JobHealth& job) {
  ProcessHealth& mine = job.processes[static_cast<size_t>(talk.index())];
  const std::string conclusion = talk.Report(ProcessToText(mine));
  if (conclusion.empty()) {
    job.hangs = true;
    job.processes.front().problems.push_back(talk.ProblemOf(0));
  }
  job.hangs = job.hangs || conclusion == "hangs";
  job.sick_elsewhere = conclusion != "healthy";
}

}  // namespace

bool JobHealth::healthy() const {
  return !hangs && !sick_elsewhere &&
         std::ranges::all_of(processes, [](const ProcessHealth& one) {
           return one.problems.empty();
         });
}

std::string NodeName() {
  if (const char* name = std::getenv("SLURMD_NODENAME")) return name;
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

void CompareProcesses(std::vector<ProcessHealth>& processes) {
  CompareBuilds(processes);
  CompareClocks(processes);
  NoteSlowOnes(processes);
}

JobNeeds NeedsOf(const train::Experiment& experiment,
                 const std::filesystem::path& folder, int processes) {
  const size_t runs = train::PlanRuns(experiment).size();
  const double in_all = train::EstimatedBytes(experiment) *
                        train::CrewFor(experiment, runs).side_by_side;
  double there = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code none;
    if (entry->is_regular_file(none)) {
      there += static_cast<double>(entry->file_size(none));
    }
  }
  const double results =
      static_cast<double>(train::EstimatedLogBytes(experiment, runs)) +
      train::EstimatedCheckpointBytes(experiment, runs);
  return {.memory = in_all / processes, .disk = std::max(0.0, results - there)};
}

JobHealth ExamineJob(const JobHealthOptions& options, transport::Link* link) {
  const auto begin = Steady::now();
  JobHealth job{.process = link == nullptr ? 0 : link->index()};
  const size_t count = link == nullptr ? 1 : static_cast<size_t>(link->size());
  std::unique_ptr<PeerTalk> talk;
  std::vector<std::string> nodes(count);
  if (link != nullptr) {
    talk = std::make_unique<PeerTalk>(
        *link, PeerTalk::Seconds(options.deadline_seconds));
    nodes = talk->Exchange(options.node);
  }
  const auto here = static_cast<size_t>(job.process);
  nodes[here] = options.node;
  for (size_t i = 0; i < count; ++i) {
    job.processes.push_back({.process = static_cast<int>(i),
                             .node = nodes[i].empty()
                                         ? fmt::format("of process {}", i)
                                         : nodes[i]});
  }
  ProcessHealth& mine = job.processes[here];
  mine.commit = options.commit;
  mine.reported = true;
  mine.health = ExamineNode(
      options, static_cast<int>(std::ranges::count(nodes, options.node)));
  AddProblemsOf(mine);
  if (talk != nullptr) {
    talk->Exchange("ready");
    mine.links = talk->MeasureLinks(PeerTalk::Seconds(kLinkSeconds));
    if (job.process == 0) {
      Gather(*talk, job);
    } else {
      ReportToFirst(*talk, job);
    }
  }
  job.seconds = std::chrono::duration<double>(Steady::now() - begin).count();
  return job;
}

std::vector<SickNode> SickNodesToName(const JobHealth& job) {
  std::vector<SickNode> sick;
  for (const ProcessHealth& process : job.processes) {
    const bool mine = process.process == job.process;
    if (job.process != 0 && !mine && process.process != 0) continue;
    for (const std::string& problem : process.problems) {
      sick.push_back({process.node,
                      fmt::format("process {}: {}", process.process, problem)});
    }
  }
  return sick;
}

std::vector<report::NodeRow> RowsOf(const JobHealth& job) {
  std::vector<report::NodeRow> rows;
  for (const ProcessHealth& process : job.processes) {
    const NodeHealth& health = process.health;
    rows.push_back(
        {.process = process.process,
         .host = process.node,
         .memory_bytes_per_second = health.memory.bytes_per_second,
         .write_bytes_per_second = health.disk.write_bytes_per_second,
         .read_bytes_per_second = health.disk.read_bytes_per_second,
         .link_bytes_per_second = SlowestLink(process),
         .link_seconds = LongestWay(process),
         .clock_seconds_ahead = health.disk.seconds_ahead,
         .sick = !process.problems.empty(),
         .noted = !process.notes.empty()});
  }
  return rows;
}

}  // namespace isoloss::doctor
