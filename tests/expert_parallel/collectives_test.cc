#include "isoloss/expert_parallel/collectives.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "isoloss/transport/process_transport.h"
#include "support/memory_network.h"

namespace isoloss::expert_parallel::collectives_test {
namespace {

/// Fewer local ranks than threads: the phase of a process's first rank may then
/// run on a thread that does not own the transport.
TEST(Collectives, SumOnWhateverThreadAPhaseRuns) {
  constexpr int kProcesses = 2;
  constexpr int kRanks = 4;
  constexpr int kThreads = 4;
  constexpr int kSteps = 300;
  transport::MemoryNetwork network(kProcesses);
  std::vector<std::vector<float>> sums(kProcesses);
  std::vector<std::thread> threads;
  for (int process = 0; process < kProcesses; ++process) {
    threads.emplace_back([&, process] {
      Executor executor(kThreads);
      Mesh mesh(
          {.topology = {.experts = kRanks, .ranks = kRanks, .replicas = 1},
           .options = {},
           .dispatch_units = 1},
          std::make_unique<transport::ProcessTransport>(
              "memory", transport::TransportOptions{.ranks = kRanks}, executor,
              /*run_id=*/1, &network.endpoint(process)),
          executor);
      for (int step = 1; step <= kSteps; ++step) {
        Matrix<float> gradient(3, 5);
        for (size_t i = 0; i < gradient.size(); ++i) {
          gradient.data()[i] = static_cast<float>(step * (process + 1));
        }
        const MatrixView<float> all[] = {gradient.view()};
        mesh.BeginStep(step);
        SumReplicated(mesh, all);
        sums[static_cast<size_t>(process)].push_back(gradient.data()[14]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (const std::vector<float>& of_process : sums) {
    ASSERT_EQ(of_process.size(), static_cast<size_t>(kSteps));
    for (int step = 1; step <= kSteps; ++step) {
      EXPECT_EQ(of_process[static_cast<size_t>(step - 1)],
                static_cast<float>(3 * step));
    }
  }
}

}  // namespace
}  // namespace isoloss::expert_parallel::collectives_test
