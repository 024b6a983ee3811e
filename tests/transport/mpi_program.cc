// One process of an MPI job, for mpi_test.py.
// Usage: transport_mpi_program <what> <deadline seconds> <reason folder>
//   digest    several runs of several steps; process 0 prints a digest
//   forever   steps until killed; each process prints its id first
//   mismatch  the last process skips an operation
//   pause     a few steps; each process prints its id, waits 2 s and ends
//   print     as forever, but process 0 prints without end from round 1000 on
//   unequal   transport `loop`, although there may be several processes
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "fleet.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/transport/launch.h"

namespace isoloss::transport {
namespace {

constexpr int kRanks = 8;

/// Rows of up to 24 * 400 bytes, so that some exceed what MPI sends eagerly.
Traffic MixedTraffic() {
  return Traffic([](int round, int source, int destination) {
    const int x = (round * 31 + source * 7 + destination * 13) % 5;
    const size_t rows = x == 0 ? 0 : x == 1 ? 400 : static_cast<size_t>(x);
    return MessageSize{rows, rows * 24};
  });
}

/// Digest of all bytes that arrive in `round`, whoever hosts the receivers.
uint64_t ExchangedDigest(Transport& transport, int round) {
  const Traffic traffic = MixedTraffic();
  std::vector<uint64_t> digests(kRanks);
  transport.AllToAll(
      {OpKind::kDispatch, round % 4},
      [&](int rank, Outbox& outbox) {
        traffic.Fill(round, rank, kRanks, outbox);
      },
      [&](int rank, std::span<MessageSize> sizes) {
        traffic.Expect(round, rank, sizes);
      },
      [&](int rank, const Inbox& inbox) {
        uint64_t sum = 0;
        for (int source = 0; source < kRanks; ++source) {
          const auto payload = inbox.From(source);
          sum = sum * 31 + DigestOf(std::string_view(
                               reinterpret_cast<const char*>(payload.data()),
                               payload.size()));
        }
        digests[static_cast<size_t>(rank)] = sum;
      });
  uint64_t digest = 0;
  transport.AllReduce({OpKind::kConservation}, Reduction::kXor,
                      [&](int rank, std::span<uint64_t> mine) {
                        mine[0] = digests[static_cast<size_t>(rank)] *
                                  static_cast<uint64_t>(2 * rank + 1);
                      },
                      {&digest, 1});
  return digest;
}

void PrintDigest(const TransportOptions& options, Executor& executor) {
  uint64_t digest = 0;
  for (int run = 0; run < 3; ++run) {
    const auto transport = MakeTransport("mpi", options, executor);
    for (int round = 0; round < 20; ++round) {
      transport->BeginStep(round);
      digest = digest * 31 + ExchangedDigest(*transport, run * 100 + round);
    }
    if (run == 2 && transport->process() == 0) {
      fmt::print("digest {:016x}\n", digest);
    }
  }
}

void PrintId(const Transport& transport) {
  fmt::print("process {} pid {}\n", transport.process(), getpid());
  std::fflush(stdout);
}

/// With `chatty`, process 0 prints more than any pipe takes.
void StepForever(const TransportOptions& options, Executor& executor,
                 bool chatty) {
  const auto transport = MakeTransport("mpi", options, executor);
  for (int round = 0;; ++round) {
    transport->BeginStep(round);
    ExchangedDigest(*transport, round);
    if (round == 10) PrintId(*transport);
    if (!chatty || transport->process() != 0 || round < 1000) continue;
    fmt::print("{}\n", std::string(1000, '.'));
    std::fflush(stdout);
  }
}

void Pause(const TransportOptions& options, Executor& executor) {
  const auto transport = MakeTransport("mpi", options, executor);
  transport->BeginStep(0);
  ExchangedDigest(*transport, 0);
  PrintId(*transport);
  std::this_thread::sleep_for(std::chrono::seconds(2));
}

void SkipOne(const TransportOptions& options, Executor& executor) {
  const auto transport = MakeTransport("mpi", options, executor);
  transport->BeginStep(3);
  transport->Barrier();
  const Traffic traffic = MixedTraffic();
  if (transport->process() + 1 < transport->processes()) {
    traffic.Exchange(*transport, 1, {OpKind::kDispatch, 1});
  }
  traffic.Exchange(*transport, 2, {OpKind::kCombine, 1});
}

int Main(const std::string& what, const TransportOptions& options) {
  try {
    Executor executor(1);
    if (what == "digest") PrintDigest(options, executor);
    if (what == "forever") StepForever(options, executor, /*chatty=*/false);
    if (what == "print") StepForever(options, executor, /*chatty=*/true);
    if (what == "pause") Pause(options, executor);
    if (what == "mismatch") SkipOne(options, executor);
    if (what == "unequal") MakeTransport("loop", options, executor);
  } catch (const Error& error) {
    fmt::print(stderr, "{} error: {}\n", ErrorKindName(error.kind()),
               error.what());
    if (JobHasPeers()) EndJob(error.what());
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace isoloss::transport

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return isoloss::transport::Main(
      argv[1], {.ranks = isoloss::transport::kRanks,
                .deadline_seconds = std::strtod(argv[2], nullptr),
                .reason_folder = argv[3]});
}
