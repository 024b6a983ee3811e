// One program on all processes of a transport, and messages it can check.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "isoloss/transport/transport.h"
#include "support/memory_network.h"

namespace isoloss::transport {

/// Which transport, over how many processes.
struct Arrangement {
  const char* label;
  const char* name;  // of MakeTransport; "memory": processes over MemoryNetwork
  int processes = 1;  // of "memory"
  int executor = 1;
  size_t most_parcel_bytes = size_t{1} << 30;  // of "memory"
};

/// For messages of GoogleTest.
inline void PrintTo(const Arrangement& arrangement, std::ostream* out) {
  *out << arrangement.label;
}

/// loop, threads, shuffled, and processes that are threads of this one.
std::vector<Arrangement> AllArrangements();

/// For names of parameterised tests.
inline std::string NameOf(const ::testing::TestParamInfo<Arrangement>& info) {
  return info.param.label;
}

class Fleet {
 public:
  Fleet(const Arrangement& arrangement, TransportOptions options,
        MemoryNetwork::Hook hook = {});

  using Program = std::function<void(Transport& transport)>;
  /// Runs `program` in each process, on a new transport. Returns what each
  /// ended with: the text of a TransportError, or "".
  std::vector<std::string> Run(const Program& program);

  MemoryNetwork& network() { return *network_; }

 private:
  std::string RunProcess(int process, const Program& program);

  Arrangement arrangement_;
  TransportOptions options_;
  std::unique_ptr<MemoryNetwork> network_;
  uint64_t runs_ = 0;
};

/// Messages whose sizes and bytes follow from (round, source, destination).
class Traffic {
 public:
  using Size =
      std::function<MessageSize(int round, int source, int destination)>;
  explicit Traffic(Size size) : size_(std::move(size)) {}

  /// One AllToAll; fails the test unless every byte is right.
  void Exchange(Transport& transport, int round,
                const Operation& operation) const;

  void Fill(int round, int rank, int ranks, Outbox& outbox) const;
  void Expect(int round, int rank, std::span<MessageSize> sizes) const;
  void Verify(int round, int rank, int ranks, const Inbox& inbox) const;
  MessageSize size(int round, int source, int destination) const {
    return size_(round, source, destination);
  }

 private:
  Size size_;
};

/// Rows of 24 bytes, uneven, many of them none; other sizes in other rounds.
Traffic UnevenTraffic();

}  // namespace isoloss::transport
