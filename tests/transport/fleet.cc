#include "fleet.h"

#include <gtest/gtest.h>

#include <thread>

#include "isoloss/base/error.h"
#include "isoloss/transport/process_transport.h"

namespace isoloss::transport {
namespace {

uint64_t Mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15;
  return x ^ x >> 29;
}

std::byte ByteAt(uint64_t key, size_t i) {
  return static_cast<std::byte>(Mix(key + i / 8) >> (i % 8 * 8));
}

uint64_t Key(int round, int source, int destination) {
  return Mix(static_cast<uint64_t>(round) << 40 |
             static_cast<uint64_t>(source) << 20 |
             static_cast<uint64_t>(destination));
}

}  // namespace

std::vector<Arrangement> AllArrangements() {
  return {{"loop", "loop"},
          {"loop_on_two_threads", "loop", 1, 2},
          {"threads", "threads"},
          {"shuffled", "shuffled"},
          {"one_process", "memory", 1},
          {"two_processes", "memory", 2},
          {"four_processes", "memory", 4},
          {"two_processes_on_two_threads", "memory", 2, 2},
          {"two_processes_small_parcels", "memory", 2, 1, 100}};
}

Fleet::Fleet(const Arrangement& arrangement, TransportOptions options,
             MemoryNetwork::Hook hook)
    : arrangement_(arrangement), options_(std::move(options)) {
  network_ = std::make_unique<MemoryNetwork>(
      arrangement.processes, arrangement.most_parcel_bytes, std::move(hook));
}

std::string Fleet::RunProcess(int process, const Program& program) {
  try {
    Executor executor(arrangement_.executor);
    const auto transport =
        arrangement_.name == std::string("memory")
            ? std::make_unique<ProcessTransport>("memory", options_, executor,
                                                 runs_,
                                                 &network_->endpoint(process))
            : MakeTransport(arrangement_.name, options_, executor);
    program(*transport);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTransport) << error.what();
    return error.what();
  }
  return "";
}

std::vector<std::string> Fleet::Run(const Program& program) {
  ++runs_;
  std::vector<std::string> errors(static_cast<size_t>(arrangement_.processes));
  std::vector<std::thread> threads;
  for (int process = 0; process < arrangement_.processes; ++process) {
    threads.emplace_back([&, process] {
      errors[static_cast<size_t>(process)] = RunProcess(process, program);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void Traffic::Fill(int round, int rank, int ranks, Outbox& outbox) const {
  for (int to = 0; to < ranks; ++to) {
    const MessageSize wanted = size_(round, rank, to);
    if (wanted.rows == 0) continue;
    const auto payload = outbox.Add(to, wanted);
    ASSERT_EQ(payload.size(), wanted.bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(payload.data()) % 64, 0);
    for (size_t i = 0; i < payload.size(); ++i) {
      payload[i] = ByteAt(Key(round, rank, to), i);
    }
  }
}

void Traffic::Expect(int round, int rank, std::span<MessageSize> sizes) const {
  for (size_t source = 0; source < sizes.size(); ++source) {
    ASSERT_EQ(sizes[source].rows, 0);
    sizes[source] = size_(round, static_cast<int>(source), rank);
  }
}

void Traffic::Verify(int round, int rank, int ranks, const Inbox& inbox) const {
  for (int source = 0; source < ranks; ++source) {
    const MessageSize due = size_(round, source, rank);
    const auto payload = inbox.From(source);
    ASSERT_EQ(payload.size(), due.rows == 0 ? 0 : due.bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(payload.data()) % 64, 0);
    for (size_t i = 0; i < payload.size(); ++i) {
      ASSERT_EQ(payload[i], ByteAt(Key(round, source, rank), i))
          << "byte " << i << " from rank " << source << " to rank " << rank;
    }
  }
}

void Traffic::Exchange(Transport& transport, int round,
                       const Operation& operation) const {
  const int ranks = transport.ranks();
  transport.AllToAll(
      operation,
      [&](int rank, Outbox& outbox) { Fill(round, rank, ranks, outbox); },
      [&](int rank, std::span<MessageSize> sizes) {
        Expect(round, rank, sizes);
      },
      [&](int rank, const Inbox& inbox) { Verify(round, rank, ranks, inbox); });
}

Traffic UnevenTraffic() {
  return Traffic([](int round, int source, int destination) {
    const uint64_t bits = Key(round + 1000, source, destination);
    const size_t rows = bits % 3 == 0 ? 0 : bits / 3 % 20;
    return MessageSize{rows, rows * 24};
  });
}

}  // namespace isoloss::transport
