// Processes that examine each other: whatever is sick is named, and healthy
// ones are not.
#include "isoloss/doctor/job_health.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "isoloss/doctor/job_health_json.h"
#include "isoloss/transport/message.h"
#include "support/memory_network.h"

namespace isoloss::doctor::job_health_test {
namespace {

using transport::MemoryNetwork;
using Fate = MemoryNetwork::Fate;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Each wait's end. Threads of a busy machine that run are not later.
constexpr double kDeadline = 1.5;

JobHealthOptions Quick(int process) {
  return {.folder = std::filesystem::temp_directory_path(),
          .deadline_seconds = kDeadline,
          .node = fmt::format("n{}", process),
          .commit = "abc",
          .examine_numerics = [] { return NumericsHealth(); },
          .examine_disk = [] { return DiskHealth(); }};
}

using Edit = std::function<void(int process, JobHealthOptions& options)>;

/// Examines a job whose processes are threads of this one.
std::vector<JobHealth> Examined(int processes, MemoryNetwork& network,
                                const Edit& edit = {}) {
  std::vector<JobHealth> found(static_cast<size_t>(processes));
  std::vector<std::thread> threads;
  for (int process = 0; process < processes; ++process) {
    threads.emplace_back([&, process] {
      JobHealthOptions options = Quick(process);
      if (edit) edit(process, options);
      found[static_cast<size_t>(process)] =
          ExamineJob(options, &network.endpoint(process));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

/// "n1: its ..." of all that a process names.
std::vector<std::string> Named(const JobHealth& job) {
  std::vector<std::string> named;
  for (const SickNode& sick : SickNodesToName(job)) {
    named.push_back(sick.node + ": " + sick.reason);
  }
  return named;
}

TEST(JobHealth, OfHealthyNodesHasAllRates) {
  MemoryNetwork network(3);
  const auto found = Examined(3, network);

  for (const JobHealth& job : found) {
    EXPECT_TRUE(job.healthy());
    EXPECT_THAT(Named(job), IsEmpty());
  }
  for (const ProcessHealth& process : found[0].processes) {
    EXPECT_TRUE(process.reported);
    ASSERT_EQ(process.links.size(), 2);
    for (const PeerLink& link : process.links) {
      EXPECT_GT(link.bytes_per_second, 0);
      EXPECT_GT(link.seconds, 0);
      // Of one clock: half the way there and back is all that is unknown.
      EXPECT_LE(std::abs(link.clock_ahead), link.seconds + 1e-6);
    }
    EXPECT_GT(process.health.memory.bytes_per_second, 0);
  }
  EXPECT_EQ(RowsOf(found[0]).size(), 3);
}

TEST(JobHealth, OfOneProcessNeedsNoLink) {
  const JobHealth job = ExamineJob(Quick(0), nullptr);

  EXPECT_TRUE(job.healthy());
  EXPECT_EQ(job.processes.size(), 1);
}

TEST(JobHealth, NamesWhatAProcessFindsOnItsMachine) {
  MemoryNetwork network(3);
  const auto found =
      Examined(3, network, [](int process, JobHealthOptions& options) {
        if (process == 1) {
          options.examine_numerics = [] {
            return NumericsHealth{.problem = "wrong bits"};
          };
        }
        if (process == 2) {
          options.examine_disk = [] {
            return DiskHealth{.problem = "the disk lies"};
          };
        }
      });

  // Process 0 of all, the others of themselves.
  EXPECT_THAT(Named(found[0]), ElementsAre("n1: process 1: wrong bits",
                                           "n2: process 2: the disk lies"));
  EXPECT_THAT(Named(found[1]), ElementsAre("n1: process 1: wrong bits"));
  EXPECT_THAT(Named(found[2]), ElementsAre("n2: process 2: the disk lies"));
  for (const JobHealth& job : found) {
    EXPECT_FALSE(job.healthy());
    EXPECT_FALSE(job.hangs);
  }
}

TEST(JobHealth, NamesTheProcessWhoseBytesArriveDamaged) {
  for (const int processes : {2, 3}) {
    MemoryNetwork network(
        processes, size_t{1} << 30,
        [](int source, int, int number, std::span<std::byte> bytes) {
          // A bit of a block, now and then.
          if (source == 1 && number > 5 && bytes.size() > 100000) {
            bytes[77777] ^= std::byte{4};
          }
          return Fate::kDeliver;
        });
    const auto found = Examined(processes, network);

    EXPECT_THAT(Named(found[0]),
                ElementsAre(AllOf(HasSubstr("n1: process 1: what process 1 "
                                            "sent to process "),
                                  HasSubstr("damaged on the way: payload"))))
        << processes;
    EXPECT_FALSE(found[1].healthy());
  }
}

TEST(JobHealth, NamesAProcessThatHangs) {
  for (const int silent : {1, 2}) {
    MemoryNetwork network(3);
    const auto found =
        Examined(3, network, [&](int process, JobHealthOptions& options) {
          if (process != silent) return;
          options.examine_disk = [&network, silent] {
            network.Silence(silent);
            return DiskHealth();
          };
        });

    EXPECT_THAT(Named(found[0]),
                ElementsAre(HasSubstr(fmt::format(
                    "n{0}: process {0}: process {0} has not answered process",
                    silent))));
    EXPECT_TRUE(found[0].hangs);
    EXPECT_TRUE(found[static_cast<size_t>(3 - silent)].hangs);
    // Three waits for one that hangs, each with its end, and the links.
    EXPECT_LT(found[0].seconds, 3 * kDeadline + 6);
  }
}

TEST(JobHealth, NamesProcess0IfItHangs) {
  MemoryNetwork network(3);
  const auto found =
      Examined(3, network, [&](int process, JobHealthOptions& options) {
        if (process != 0) return;
        options.examine_disk = [&network] {
          network.Silence(0);
          return DiskHealth();
        };
      });

  for (const size_t other : {1, 2}) {
    EXPECT_THAT(Named(found[other]),
                ElementsAre(HasSubstr("n0: process 0: process 0 has not "
                                      "answered process")));
    EXPECT_TRUE(found[other].hangs);
    EXPECT_FALSE(found[other].healthy());
  }
}

/// So many processes as they report, alike and healthy.
std::vector<ProcessHealth> Reports(int count) {
  std::vector<ProcessHealth> processes;
  for (int i = 0; i < count; ++i) {
    ProcessHealth process{.process = i, .commit = "abc", .reported = true};
    process.health.memory.bytes_per_second = 10e9;
    process.health.disk.write_bytes_per_second = 1e8;
    process.health.disk.read_bytes_per_second = 1e8;
    for (int peer = 0; peer < count; ++peer) {
      if (peer == i) continue;
      process.links.push_back(
          {.peer = peer, .bytes_per_second = 1e9, .seconds = 1e-6});
    }
    processes.push_back(process);
  }
  return processes;
}

TEST(JobHealth, NamesABuildThatDiffersFromMost) {
  auto processes = Reports(3);
  processes[0].commit = "old";
  CompareProcesses(processes);

  EXPECT_THAT(processes[0].problems,
              ElementsAre(HasSubstr("commit old of the program, but others "
                                    "have abc")));
  EXPECT_THAT(processes[1].problems, IsEmpty());
}

TEST(JobHealth, NamesAClockThatIsOffThoseOfMost) {
  // Process 0's: to all others it is ahead.
  auto processes = Reports(3);
  for (const size_t i : {1, 2}) processes[i].links[0].clock_ahead = 7;
  CompareProcesses(processes);
  EXPECT_THAT(processes[0].problems,
              ElementsAre(HasSubstr("its clock is 7 s ahead of those of most "
                                    "processes, but at most 5 s")));
  EXPECT_THAT(processes[1].problems, IsEmpty());
  EXPECT_THAT(processes[2].problems, IsEmpty());

  auto two = Reports(2);
  two[1].links[0].clock_ahead = 7;
  CompareProcesses(two);
  EXPECT_THAT(two[1].problems,
              ElementsAre(HasSubstr("7 s behind that of process 0")));

  auto within = Reports(3);
  within[2].links[0].clock_ahead = -4.9;
  CompareProcesses(within);
  EXPECT_THAT(within[2].problems, IsEmpty());
}

TEST(JobHealth, NotesARateOfLessThanATenthOfTheMedian) {
  const auto slow = [](int count, double rate) {
    auto processes = Reports(count);
    processes[1].health.memory.bytes_per_second = rate;
    CompareProcesses(processes);
    EXPECT_THAT(processes[1].problems, IsEmpty());
    EXPECT_THAT(processes[0].notes, IsEmpty());
    return processes[1].notes;
  };

  EXPECT_THAT(slow(3, 0.9e9),
              ElementsAre(HasSubstr("memory reads 0.9 GB/s, less than a tenth "
                                    "of the median, 10 GB/s")));
  EXPECT_THAT(slow(3, 1.1e9), IsEmpty());
  EXPECT_THAT(slow(2, 0.9e9), IsEmpty()) << "of two, none is the usual one";
}

TEST(JobHealth, ReportsAreReadAsTheyWereWritten) {
  auto processes = Reports(2);
  processes[1].problems = {"one \x1b[2J"};
  const std::string text = ProcessToText(processes[1]);
  ProcessHealth read;

  ASSERT_TRUE(ProcessFromText(text, read));
  EXPECT_EQ(ProcessToText(read), text);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  for (const char* other : {"", "{", "[]", "{\"process\": \"x\"}"}) {
    EXPECT_FALSE(ProcessFromText(other, read)) << other;
  }
}

}  // namespace
}  // namespace isoloss::doctor::job_health_test
